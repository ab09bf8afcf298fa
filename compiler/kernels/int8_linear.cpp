// Linear layers by products of 8-bit numbers: rows are quantized, multiplied and finished in one pass.
//
// Owns `infinity::int8_linear`. Work is divided into blocks of rows and, where there are few rows, of
// columns; each item quantizes its rows for itself. A sum runs over a whole row, so that numbers do not
// depend on how work is divided.

#if defined(__AVX512VNNI__) && defined(__AVX512BF16__)

#include "activation.h"
#include "int8_rows.h"
#include "int8_tile.h"
#include "scratch.h"
#include "tensor_view.h"

#include <omp.h>

#include <algorithm>
#include <atomic>

namespace {

using namespace infinity;

constexpr int64_t kBlockBytes = 256 * 1024;  // of quantized rows: they stay in the second-level cache
constexpr int64_t kMaxBlockRows = 192;
constexpr int64_t kFewRows = 2 * kTileRows;   // per thread: below this, columns are divided

struct Problem {
  SourceRows rows;
  const int8_t* weights;
  Columns columns;
  Activation activation;
  BFloat16* out;
  int64_t num_rows, num_columns;

  int64_t depth() const { return rows.depth; }
  int64_t panels() const { return (num_columns + kPanel - 1) / kPanel; }
  const int8_t* panel(int64_t p) const { return weights + p * kPanel * depth(); }
};

// How rows and columns are divided.
struct Division {
  int64_t block_rows, blocks, groups;

  static Division of(const Problem& p, int64_t threads) {
    if (p.num_rows < kFewRows * threads) return {p.num_rows, 1, std::clamp<int64_t>(2 * threads, 1, p.panels())};
    const int64_t most = std::clamp<int64_t>(kBlockBytes / p.depth(), kTileRows, kMaxBlockRows);
    const int64_t wanted = round_up((p.num_rows + most - 1) / most, threads);
    const int64_t rows = round_up((p.num_rows + wanted - 1) / wanted, kTileRows);
    return {rows, (p.num_rows + rows - 1) / rows, 1};
  }
};

struct Buffers {
  uint8_t* rows;
  float* scales;

  bool reserve(Scratch& scratch, int64_t rows_of_block, int64_t depth) {
    const int64_t floats = (rows_of_block * depth + 3) / 4;
    if (!scratch.reserve(floats + rows_of_block, 2)) return false;
    rows = reinterpret_cast<uint8_t*>(scratch.take(floats));
    scales = scratch.take(rows_of_block);
    return true;
  }
};

// Rows [first, end) times the panels [first_panel, end_panel).
void multiply(const Problem& p, const Buffers& b, int64_t first, int64_t end, int64_t first_panel, int64_t end_panel) {
  for (int64_t row = first; row < end; ++row)
    b.scales[row - first] = quantize_row(p.rows, row, b.rows + (row - first) * p.depth());
  for (int64_t panel = first_panel; panel < end_panel; ++panel) {
    const int64_t column = panel * kPanel;
    const int64_t columns = std::min(kPanel, p.num_columns - column);
    for (int64_t row = first; row < end; row += kTileRows) {
      const Tile tile{b.rows + (row - first) * p.depth(), p.depth(),      p.panel(panel),
                      b.scales + (row - first),           p.columns.from(column), p.activation,
                      p.out + row * p.num_columns + column, p.num_columns,  columns};
      run_tile(tile, std::min<int64_t>(kTileRows, end - row));
    }
  }
}

bool multiply_all(const Problem& p) {
  const Division d = Division::of(p, omp_get_max_threads());
  std::atomic<bool> complete{true};
#pragma omp parallel
  {
    thread_local Scratch scratch;
    Buffers buffers;
    const bool ready = buffers.reserve(scratch, d.block_rows, p.depth());
    if (!ready) complete = false;
#pragma omp for collapse(2) schedule(dynamic, 1)
    for (int64_t block = 0; block < d.blocks; ++block)
      for (int64_t group = 0; group < d.groups; ++group)
        if (ready)
          multiply(p, buffers, block * d.block_rows, std::min(p.num_rows, (block + 1) * d.block_rows),
                   group * p.panels() / d.groups, (group + 1) * p.panels() / d.groups);
  }
  return complete;
}

struct Arguments {
  TensorView x, factors, weights, column_sums, column_scales, bias;

  bool are_valid() const {
    const int64_t depth = x.sizes[1], columns = column_scales.sizes[0];
    return x.dtype == aoti_torch_dtype_bfloat16() && depth % kStepDepth == 0 && depth > 0 &&
           weights.dtype == aoti_torch_dtype_int8() && weights.sizes[0] == round_up(columns, kPanel) * depth &&
           column_sums.dtype == aoti_torch_dtype_int32() && column_sums.sizes[0] == columns && is_float32(column_scales) &&
           is_absent_or(factors, depth) && is_absent_or(bias, columns);
  }
  static bool is_absent_or(const TensorView& view, int64_t size) {
    return view.data == nullptr || (is_float32(view) && view.sizes[0] == size);
  }
};

}  // namespace

// x (N, K) bfloat16, K a multiple of 4; factors (K,) float32 or null, by which x is multiplied before it
// is quantized. weights int8, packed as compiler/int8/weights.py says; column_sums (M,) int32: 128 times
// the sum of each column; column_scales (M,) float32; bias (M,) float32 or null; activation: see
// activation.h. Returns a new (N, M) bfloat16 tensor.
INFINITY_EXPORT AOTITorchError INFINITY_JOIN(aoti_torch_cpu_int8_linear, INFINITY_DIGEST)(
    AtenTensorHandle x, AtenTensorHandle* factors, AtenTensorHandle weights, AtenTensorHandle column_sums,
    AtenTensorHandle column_scales, AtenTensorHandle* bias, int64_t activation, AtenTensorHandle* ret) {
  return guarded([&] {
    Arguments a;
    TensorView out;
    if (!read_view(x, 2, &a.x) || !read_optional(factors, 1, &a.factors) || !read_view(weights, 1, &a.weights) ||
        !read_view(column_sums, 1, &a.column_sums) || !read_view(column_scales, 1, &a.column_scales) ||
        !read_optional(bias, 1, &a.bias) || !a.are_valid() || !is_activation(activation))
      return false;
    const int64_t sizes[] = {a.x.sizes[0], a.column_scales.sizes[0]};
    if (!make_output(2, sizes, aoti_torch_dtype_bfloat16(), ret, &out)) return false;
    const Columns columns{a.column_sums.as<const int32_t>(), a.column_scales.as<const float>(), a.bias.as<const float>()};
    const SourceRows rows{a.x.as<const BFloat16>(), a.x.strides[0], a.x.sizes[1], a.factors.as<const float>()};
    return fill_output(ret, [&] {
      return multiply_all({rows, a.weights.as<const int8_t>(), columns, static_cast<Activation>(activation),
                           out.as<BFloat16>(), sizes[0], sizes[1]});
    });
  });
}

#endif
