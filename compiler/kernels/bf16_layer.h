// A linear layer over rows, and where its results go.
#pragma once

#include "bf16_tile.h"
#include "shares.h"
#include "tensor_view.h"

#include <algorithm>

namespace infinity {

constexpr int64_t kMatrixBlock = 32;                         // rows whose tiles lie together
constexpr int64_t kTileBlock = kMatrixBlock * kDepthBlock;  // numbers of them

// (M, K) weights packed as bf16_tile.h says, and (M,) bias.
struct Layer {
  const BFloat16* weights;
  const float* bias;  // or null
  int64_t depth, columns;

  int64_t padded_depth() const { return round_up(depth, kDepthBlock); }
  int64_t panel_size() const { return padded_depth() * kPanel; }
  int64_t panel_bytes() const { return panel_size() * static_cast<int64_t>(sizeof(BFloat16)); }
  int64_t panels() const { return (columns + kPanel - 1) / kPanel; }
  const BFloat16* panel(int64_t p) const { return weights + p * panel_size(); }
  const float* bias_of(int64_t p) const { return bias ? bias + p * kPanel : nullptr; }
};

// Results as rows, with other rows added.
struct RowResults {
  static constexpr bool kLiesInRows = true;
  BFloat16* out;
  int64_t stride;
  SourceRows residual;  // no data: none

  // Of rows from `row` on.
  Epilogue at(const Layer& layer, int64_t row, int64_t p) const {
    const int64_t column = p * kPanel;
    return {layer.bias_of(p),
            residual.data ? residual.data + row * residual.stride + column : nullptr,
            residual.stride,
            out + row * stride + column,
            stride,
            columns_mask(layer.columns - column)};
  }

  RowResults from(int64_t row) const {
    return {out + row * stride, stride, {residual.data ? residual.data + row * residual.stride : nullptr, residual.stride}};
  }
};

// Results as tiles of the matrix unit, which the next layer reads in place: 32 rows times 32 columns
// lie together, row by row. Of a layer whose columns fill its panels; `row` is the first of 32.
struct TileResults {
  static constexpr bool kLiesInRows = false;
  BFloat16* out;

  Epilogue at(const Layer& layer, int64_t row, int64_t p) const {
    return {layer.bias_of(p), nullptr, 0, out + (row / kMatrixBlock * layer.panels() + p) * kTileBlock, kDepthBlock, ~0u};
  }
};

// Whether weights and bias, which may be absent, are those of a layer from `depth` numbers to `columns`.
inline bool is_layer(const TensorView& weights, const TensorView& bias, int64_t depth, int64_t columns) {
  return depth % 2 == 0 && depth > 0 && columns > 0 && weights.dtype == aoti_torch_dtype_bfloat16() &&
         weights.sizes[0] == round_up(columns, kPanel) * round_up(depth, kDepthBlock) &&
         (bias.data == nullptr || (is_float32(bias) && bias.sizes[0] == columns));
}

// Whether something that may be absent can be added to (N, columns) results.
inline bool is_residual(const TensorView& view, int64_t num_rows, int64_t columns) {
  return view.data == nullptr ||
         (view.dtype == aoti_torch_dtype_bfloat16() && view.sizes[0] == num_rows && view.sizes[1] == columns);
}

inline SourceRows rows_of_matrix(const TensorView& view) { return {view.as<const BFloat16>(), view.strides[0]}; }

constexpr int64_t kBlockBytes = 768 * 1024;  // of rows: they stay in the second-level cache
constexpr int64_t kMaxBlockRows = 256;
constexpr int64_t kItemsPerThread = 2;
constexpr int64_t kRowsPerThread = 40;  // from so many on, each thread has rows of its own

// At most so many rows of `width` numbers are one block.
inline int64_t block_rows(int64_t width) {
  return std::clamp<int64_t>(kBlockBytes / (2 * width) / kMatrixBlock * kMatrixBlock, kMatrixBlock, kMaxBlockRows);
}

// Blocks of at most `most` rows, a multiple of `multiple`, and where there are few rows, groups of panels.
inline Grid divide_rows(int64_t num_rows, int64_t panels, int64_t most, int64_t threads, int64_t multiple = 16) {
  int64_t blocks = (num_rows + most - 1) / most;
  if (num_rows >= kRowsPerThread * threads) blocks = round_up(blocks, threads);
  const int64_t rows = round_up((num_rows + blocks - 1) / blocks, multiple);
  blocks = (num_rows + rows - 1) / rows;
  const int64_t groups = blocks >= threads ? 1 : (kItemsPerThread * threads + blocks - 1) / blocks;
  return {num_rows, panels, rows, blocks, std::min(groups, panels)};
}

struct Panels {
  int64_t first, end;
};

// Rows [0, num_rows) times some panels, out of vector registers.
template <Activation kActivation>
void multiply_on_vectors(const SourceRows& rows, int64_t num_rows, const Layer& layer, Panels panels, const RowResults& results) {
  const int64_t tiles = (num_rows + kTileRows - 1) / kTileRows;
  for (int64_t panel = panels.first; panel < panels.end; panel += 2) {
    const int64_t count = std::min<int64_t>(2, panels.end - panel);
    for (int64_t i = 0; i < tiles; ++i) {  // of as many rows as the others or one more: a tile of few is slow
      const int64_t row = i * num_rows / tiles, end = (i + 1) * num_rows / tiles;
      const VectorTile tile{rows.from(row),
                            layer.depth,
                            layer.panel(panel),
                            layer.panel_size(),
                            {results.at(layer, row, panel), results.at(layer, row, panel + count - 1)}};
      if (count == 2)
        run_vectors<kActivation, 2>(tile, end - row);
      else
        run_vectors<kActivation, 1>(tile, end - row);
    }
  }
}

}  // namespace infinity
