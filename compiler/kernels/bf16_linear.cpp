// Linear layers by products of bfloat16 numbers: multiplied and finished in one pass.
//
// Owns `infinity::bf16_linear`. Work is divided into blocks of rows and, where there are few rows, of
// columns. A sum runs over a whole row in one order, so that numbers do not depend on how work is
// divided.

#if defined(__AVX512BF16__)

#include "bf16_matrix.h"
#include "bf16_tile.h"
#include "scratch.h"
#include "shares.h"
#include "tensor_view.h"

#include <omp.h>

#include <algorithm>
#include <atomic>

namespace {

using namespace infinity;

constexpr int64_t kBlockBytes = 768 * 1024;  // of rows: they stay in the second-level cache
constexpr int64_t kMaxBlockRows = 256;
constexpr int64_t kItemsPerThread = 2;
constexpr int64_t kRowsPerThread = 40;  // from so many on, each thread has rows of its own

struct Problem {
  SourceRows rows;
  const BFloat16* weights;
  const float* bias;
  SourceRows residual;  // no data: none
  BFloat16* out;
  int64_t num_rows, depth, num_columns;

  int64_t padded_depth() const { return round_up(depth, kDepthBlock); }
  int64_t panel_size() const { return padded_depth() * kPanel; }
  int64_t panels() const { return (num_columns + kPanel - 1) / kPanel; }
  const BFloat16* panel(int64_t p) const { return weights + p * panel_size(); }

  // Of rows from `row` on.
  Epilogue epilogue(int64_t row, int64_t p) const {
    const int64_t column = p * kPanel;
    return {bias ? bias + column : nullptr,
            residual.data ? residual.data + row * residual.stride + column : nullptr,
            residual.stride,
            out + row * num_columns + column,
            num_columns,
            columns_mask(num_columns - column)};
  }
};

Grid divide(const Problem& p, int64_t threads) {
  const int64_t most = std::clamp<int64_t>(kBlockBytes / (2 * p.depth) / 32 * 32, 32, kMaxBlockRows);
  int64_t blocks = (p.num_rows + most - 1) / most;
  if (p.num_rows >= kRowsPerThread * threads) blocks = round_up(blocks, threads);
  const int64_t rows = round_up((p.num_rows + blocks - 1) / blocks, 16);
  blocks = (p.num_rows + rows - 1) / rows;
  const int64_t groups = blocks >= threads ? 1 : (kItemsPerThread * threads + blocks - 1) / blocks;
  return {p.num_rows, p.panels(), rows, blocks, std::min(groups, p.panels())};
}

template <Activation kActivation>
void run_on_vectors(const Problem& p, const Part& item) {
  const int64_t num_rows = item.end_row - item.first_row, tiles = (num_rows + kTileRows - 1) / kTileRows;
  for (int64_t panel = item.first_panel; panel < item.end_panel; panel += 2) {
    const int64_t panels = std::min<int64_t>(2, item.end_panel - panel);
    for (int64_t i = 0; i < tiles; ++i) {  // of as many rows as the others or one more: a tile of few is slow
      const int64_t row = item.first_row + i * num_rows / tiles, end = item.first_row + (i + 1) * num_rows / tiles;
      const VectorTile tile{{p.rows.data + row * p.rows.stride, p.rows.stride},
                            p.depth,
                            p.panel(panel),
                            p.panel_size(),
                            {p.epilogue(row, panel), p.epilogue(row, panel + panels - 1)}};
      if (panels == 2)
        run_vectors<kActivation, 2>(tile, end - row);
      else
        run_vectors<kActivation, 1>(tile, end - row);
    }
  }
}

#if defined(__AMX_BF16__)

constexpr int64_t kSumsOfBlock = kMatrixBlock * kPanel;

struct MatrixBuffers {
  float* sums;     // of two blocks
  BFloat16* rows;  // what cannot be read in place

  bool reserve(Scratch& scratch, int64_t block_rows, int64_t depth) {
    const int64_t floats = round_up(block_rows, kMatrixBlock) * depth / 2;
    if (!scratch.reserve(2 * kSumsOfBlock + floats, 2)) return false;
    sums = scratch.take(2 * kSumsOfBlock);
    rows = reinterpret_cast<BFloat16*>(scratch.take(floats));
    return true;
  }
};

// Copies rows [first, end), padded with zeros to whole tiles of the matrix unit.
void copy_rows(const Problem& p, int64_t first, int64_t end, BFloat16* out) {
  const int64_t depth = p.padded_depth();
  for (int64_t row = 0; row < round_up(end - first, kMatrixRows); ++row) {
    const BFloat16* const source = p.rows.data + (first + row) * p.rows.stride;
    BFloat16* const target = out + row / kMatrixRows * kMatrixRows * depth + row % kMatrixRows * kDepthBlock;
    for (int64_t k = 0; k < depth; k += kDepthBlock) {
      const __mmask32 mask = row < end - first ? columns_mask(std::max<int64_t>(0, p.depth - k)) : 0;
      _mm512_store_si512(target + k * kMatrixRows, _mm512_maskz_loadu_epi16(mask, source + k));
    }
  }
}

template <Activation kActivation>
void run_on_matrix(const Problem& p, const Part& item, const MatrixBuffers& b) {
  const TileConfig config = TileConfig::full();
  const Tiles tiles(config);
  const int64_t depth = p.padded_depth(), blocks = depth / kDepthBlock;
  copy_rows(p, item.first_row, item.end_row, b.rows);
  asm volatile("" ::: "memory");  // what reads tiles does not tell the compiler that it reads memory
  const int64_t num_rows = item.end_row - item.first_row, row_blocks = (num_rows + kMatrixBlock - 1) / kMatrixBlock;
  const int64_t finish_each = (kMatrixBlock + blocks - 1) / blocks;
  const int64_t lines = p.panel_size() * static_cast<int64_t>(sizeof(BFloat16)) / kLineBytes;
  const int64_t fetch_each = (kPanelBlock * 2 / kLineBytes + row_blocks - 1) / row_blocks;
  PendingBlock pending;
  int64_t turn = 0;
  for (int64_t panel = item.first_panel; panel < item.end_panel; ++panel) {
    Prefetch prefetch{reinterpret_cast<const char*>(p.panel(panel + 1)), panel + 1 < item.end_panel ? lines : 0};
    for (int64_t row = 0; row < num_rows; row += kMatrixBlock, turn ^= 1) {
      const int64_t left = std::min(kMatrixBlock, num_rows - row);
      float* const sums = b.sums + turn * kSumsOfBlock;
      const BFloat16* const upper = b.rows + row * depth;
      const MatrixRows rows{upper, upper + kMatrixRows * depth, kMatrixRows * kDepthBlock, kMatrixRowBytes};
      const PendingBlock own{sums, p.epilogue(item.first_row + row, panel), left, 0};
      if (left > kMatrixRows)
        multiply_matrix<kActivation, true>(rows, p.panel(panel), blocks, sums, pending, finish_each, prefetch, fetch_each, own);
      else
        multiply_matrix<kActivation, false>(rows, p.panel(panel), blocks, sums, pending, finish_each, prefetch, fetch_each, own);
      pending = own;
    }
  }
  pending.finish<kActivation>(pending.rows);
}

#endif

struct Worker {
#if defined(__AMX_BF16__)
  MatrixBuffers buffers;
  bool reserve(Scratch& scratch, const Grid& grid, const Problem& p) {
    return !may_use_tiles() || buffers.reserve(scratch, grid.block_rows, p.padded_depth());
  }
  template <Activation kActivation>
  void run(const Problem& p, const Part& item) const {
    if (may_use_tiles())
      run_on_matrix<kActivation>(p, item, buffers);
    else
      run_on_vectors<kActivation>(p, item);
  }
#else
  bool reserve(Scratch&, const Grid&, const Problem&) { return true; }
  template <Activation kActivation>
  void run(const Problem& p, const Part& item) const {
    run_on_vectors<kActivation>(p, item);
  }
#endif
};

template <Activation kActivation>
bool multiply_all(const Problem& p) {
  if (p.num_rows == 0) return true;
  const int64_t threads = omp_get_max_threads();
  const Grid grid = divide(p, threads);
  Shares shares = Shares::of_equal_counts(grid.items(), threads);
  std::atomic<bool> complete{true};
#pragma omp parallel
  {
    thread_local Scratch scratch;
    Worker worker;
    const bool ready = worker.reserve(scratch, grid, p);
    if (!ready) complete = false;
    shares.work(omp_get_thread_num(), [&](int64_t i) {
      if (ready) worker.run<kActivation>(p, grid.part(i));
    });
  }
  return complete;
}

struct Arguments {
  TensorView x, weights, bias, residual;
  int64_t columns;

  bool are_valid() const {
    const int64_t depth = x.sizes[1], bf16 = aoti_torch_dtype_bfloat16();
    return x.dtype == bf16 && depth % 2 == 0 && depth > 0 && columns > 0 && weights.dtype == bf16 &&
           weights.sizes[0] == round_up(columns, kPanel) * round_up(depth, kDepthBlock) &&
           (bias.data == nullptr || (is_float32(bias) && bias.sizes[0] == columns)) &&
           (residual.data == nullptr ||
            (residual.dtype == bf16 && residual.sizes[0] == x.sizes[0] && residual.sizes[1] == columns));
  }
};

SourceRows rows_of_matrix(const TensorView& view) { return {view.as<const BFloat16>(), view.strides[0]}; }

}  // namespace

// x (N, K) bfloat16, K even; weights bfloat16, packed as compiler/bf16/weights.py says; columns: M;
// bias (M,) float32 or null; residual (N, M) bfloat16 or null, added behind the activation, see
// activation.h. Returns a new (N, M) bfloat16 tensor.
INFINITY_EXPORT AOTITorchError INFINITY_JOIN(aoti_torch_cpu_bf16_linear, INFINITY_DIGEST)(
    AtenTensorHandle x, AtenTensorHandle weights, int64_t columns, AtenTensorHandle* bias, AtenTensorHandle* residual,
    int64_t activation, AtenTensorHandle* ret) {
  return guarded([&] {
    Arguments a{{}, {}, {}, {}, columns};
    TensorView out;
    if (!read_view(x, 2, &a.x) || !read_view(weights, 1, &a.weights) || !read_optional(bias, 1, &a.bias) ||
        !read_optional(residual, 2, &a.residual) || !a.are_valid() || !is_activation(activation))
      return false;
    const int64_t sizes[] = {a.x.sizes[0], columns};
    if (!make_output(2, sizes, aoti_torch_dtype_bfloat16(), ret, &out)) return false;
    const Problem problem{rows_of_matrix(a.x), a.weights.as<const BFloat16>(), a.bias.as<const float>(),
                          rows_of_matrix(a.residual), out.as<BFloat16>(), sizes[0], a.x.sizes[1], columns};
    return fill_output(ret, [&] {
      bool done = false;
      with_activation(static_cast<Activation>(activation),
                      [&](auto kind) { done = multiply_all<decltype(kind)::value>(problem); });
      return done;
    });
  });
}

#endif
