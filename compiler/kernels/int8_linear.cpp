// Linear layers by products of 8-bit numbers: rows are quantized, multiplied and finished in one pass.
//
// Owns `infinity::int8_linear`. Work is divided into blocks of rows and, where there are few rows, of
// columns; each item quantizes its rows for itself. A sum runs over a whole row, so that numbers do not
// depend on how work is divided.

#if defined(__AVX512VNNI__) && defined(__AVX512BF16__)

#include "activation.h"
#include "int8_matrix.h"
#include "int8_rows.h"
#include "int8_tile.h"
#include "scratch.h"
#include "shares.h"
#include "tensor_view.h"

#include <omp.h>

#include <algorithm>
#include <atomic>

namespace {

using namespace infinity;

constexpr int64_t kBlockBytes = 256 * 1024;  // of quantized rows: they stay in the second-level cache

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

#if !defined(__AMX_INT8__)
constexpr int64_t kMatrixBufferBytes = 0;
#endif

// Quantized rows of one block, and room for what multiplies them.
struct Buffers {
  uint8_t* rows;
  float *scales, *widened;
  uint8_t* matrix;

  void quantize(const SourceRows& source, int64_t first, int64_t end) const {
    for (int64_t row = first; row < end; ++row)
      scales[row - first] = quantize_row(source, row, widened, rows + (row - first) * source.padded_depth());
  }

  bool reserve(Scratch& scratch, int64_t rows_of_block, int64_t padded_depth) {
    const int64_t row_floats = rows_of_block * padded_depth / sizeof(float);
    const int64_t matrix_floats = kMatrixBufferBytes / sizeof(float);
    if (!scratch.reserve(row_floats + rows_of_block + padded_depth + matrix_floats, 4)) return false;
    rows = reinterpret_cast<uint8_t*>(scratch.take(row_floats));
    scales = scratch.take(rows_of_block);
    widened = scratch.take(padded_depth);
    matrix = reinterpret_cast<uint8_t*>(scratch.take(matrix_floats));
    return true;
  }
};

// The kernels: each multiplies the quantized rows of a part with its panels.

// Out of registers, with VNNI.
struct ByRegisters {
  static constexpr int64_t kRows = kTileRows;  // that are multiplied at once
  static constexpr int64_t kFewRows = 2 * kTileRows;
  static constexpr int64_t kMaxBlockRows = 192;

  static void multiply(const Problem& p, const Buffers& b, const Part& part) {
    const int64_t stride = p.rows.padded_depth();
    for (int64_t panel = part.first_panel; panel < part.end_panel; ++panel) {
      const int64_t column = panel * kPanel, columns = std::min(kPanel, p.num_columns - column);
      for (int64_t row = part.first_row; row < part.end_row; row += kTileRows) {
        const int64_t place = row - part.first_row;
        const Tile tile{b.rows + place * stride, stride, p.depth(), p.panel(panel), b.scales + place, p.columns.from(column),
                        p.activation, p.out + row * p.num_columns + column, p.num_columns, columns};
        run_tile(tile, std::min<int64_t>(kTileRows, part.end_row - row));
      }
    }
  }
};

#if defined(__AMX_INT8__)
// With the tiles of the matrix unit.
struct ByMatrix {
  static constexpr int64_t kRows = 2 * kMatrixRows;
  static constexpr int64_t kFewRows = 2 * kMatrixRows;
  static constexpr int64_t kMaxBlockRows = 512;

  static void multiply(const Problem& p, const Buffers& b, const Part& part) {
    const Tiles tiles(TileConfig::full());
    const bool is_streamed = part.end_row - part.first_row <= kRows;
    MatrixPanels panels({b.rows, p.rows.padded_depth(), p.depth(), b.scales, part.end_row - part.first_row, p.weights, p.columns,
                         p.out + part.first_row * p.num_columns, p.num_columns, part.first_panel, part.end_panel, is_streamed,
                         b.matrix});
    with_activation(p.activation, [&](auto activation) { panels.run<decltype(activation)::value>(); });
  }
};
#endif

template <class Kernel>
Grid divide(const Problem& p, int64_t threads) {
  if (p.num_rows < Kernel::kFewRows * threads)
    return {p.num_rows, p.panels(), p.num_rows, 1, std::clamp<int64_t>(2 * threads, 1, p.panels())};
  const int64_t most = std::clamp<int64_t>(kBlockBytes / p.depth(), Kernel::kRows, Kernel::kMaxBlockRows);
  const int64_t wanted = round_up((p.num_rows + most - 1) / most, threads);
  const int64_t rows = round_up((p.num_rows + wanted - 1) / wanted, Kernel::kRows);
  return {p.num_rows, p.panels(), rows, (p.num_rows + rows - 1) / rows, 1};
}

template <class Kernel>
bool multiply_with(const Problem& p) {
  const int64_t threads = omp_get_max_threads();
  const Grid grid = divide<Kernel>(p, threads);
  Shares shares = Shares::of_equal_counts(grid.items(), threads);
  std::atomic<bool> complete{true};
#pragma omp parallel
  {
    thread_local Scratch scratch;
    Buffers buffers;
    const bool ready = buffers.reserve(scratch, round_up(grid.block_rows, Kernel::kRows), p.rows.padded_depth());
    if (!ready) complete = false;
    shares.work(omp_get_thread_num(), [&](int64_t i) {
      if (!ready) return;
      const Part part = grid.part(i);
      buffers.quantize(p.rows, part.first_row, part.end_row);
      Kernel::multiply(p, buffers, part);
    });
  }
  return complete;
}

bool multiply_all(const Problem& p) {
#if defined(__AMX_INT8__)
  if (may_use_tiles()) return multiply_with<ByMatrix>(p);
#endif
  return multiply_with<ByRegisters>(p);
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
