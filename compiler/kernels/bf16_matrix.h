// Linear layers by tiles of the matrix unit: blocks of 32 rows times panels of 32 columns.
//
// While a block is multiplied, the vector units finish the sums of the one before.
#pragma once

#include "amx.h"
#include "bf16_layer.h"

#if defined(__AMX_BF16__)

namespace infinity {

static_assert(kMatrixBlock == 2 * kMatrixRows);
constexpr int64_t kSumsOfBlock = kMatrixBlock * kPanel;
constexpr int64_t kLineBytes = 64;

// Rows of results are written line after line where panels of so few bytes take turns, all of a group of
// which stay in the second-level cache, while 32 rows stay in the first-level cache. Longer panels stay
// in the first-level cache, while rows take turns.
constexpr int64_t kShortPanelBytes = 64 * 1024, kGroupBytes = 200 * 1024;

// Sums that wait to be finished.
struct PendingBlock {
  const float* sums = nullptr;
  Epilogue epilogue;
  int64_t rows = 0, next = 0;

  template <Activation kActivation>
  inline void finish(int64_t count) {
    for (const int64_t end = std::min(rows, next + count); next < end; ++next)
      epilogue.finish<kActivation>(next, _mm512_load_ps(sums + next * kPanel), _mm512_load_ps(sums + next * kPanel + kLanes));
  }
};

// Memory that will be read soon, fetched a little at a time.
struct Prefetch {
  const char* next;
  int64_t left, each;  // lines

  inline void fetch() {
    for (int64_t i = std::min(each, left); i > 0; --i, --left, next += kLineBytes) _mm_prefetch(next, _MM_HINT_T1);
  }
};

// The instructions have their tile in their name.
#define INFINITY_LOAD_TILE(tile, numbers, stays)            \
  do {                                                      \
    if constexpr (stays)                                    \
      _tile_loadd(tile, numbers, kMatrixRowBytes);          \
    else                                                    \
      _tile_stream_loadd(tile, numbers, kMatrixRowBytes);   \
  } while (false)

// Two tiles of rows times two tiles of columns: four of the eight tiles hold sums, which are written
// when those of the block before, which lie there, are finished. Up to 16 rows are one tile. Of rows and
// panel one stays in the first-level cache for the next block, and the other one shall not drive it out.
template <Activation kActivation, bool kBoth, bool kRowsStay>
inline void multiply_block(const BFloat16* rows, const BFloat16* panel, int64_t blocks, float* sums, PendingBlock& pending,
                           int64_t finish_each, Prefetch& prefetch) {
  _tile_zero(0);
  _tile_zero(1);
  if (kBoth) {
    _tile_zero(2);
    _tile_zero(3);
  }
  for (int64_t block = 0; block < blocks; ++block, rows += kTileBlock, panel += kPanelBlock) {
    INFINITY_LOAD_TILE(4, rows, kRowsStay);
    INFINITY_LOAD_TILE(6, panel, !kRowsStay);
    _tile_dpbf16ps(0, 4, 6);
    INFINITY_LOAD_TILE(7, panel + kHalf, !kRowsStay);
    _tile_dpbf16ps(1, 4, 7);
    if (kBoth) {
      INFINITY_LOAD_TILE(5, rows + kTileBlock / 2, kRowsStay);
      _tile_dpbf16ps(2, 5, 6);
      _tile_dpbf16ps(3, 5, 7);
    }
    prefetch.fetch();
    pending.finish<kActivation>(finish_each);
  }
  pending.finish<kActivation>(pending.rows);
  constexpr int64_t kStride = kPanel * sizeof(float);
  _tile_stored(0, sums, kStride);
  _tile_stored(1, sums + kMatrixRows, kStride);
  if (kBoth) {
    _tile_stored(2, sums + kMatrixRows * kPanel, kStride);
    _tile_stored(3, sums + kMatrixRows * kPanel + kMatrixRows, kStride);
  }
}

#undef INFINITY_LOAD_TILE

// Rows of `depth` numbers as tiles, [num_rows / 32][depth / 32][32][32], with zeros in what fills up a tile.
inline void pack_tiles(const SourceRows& rows, int64_t num_rows, int64_t depth, BFloat16* out) {
  const int64_t padded = round_up(depth, kDepthBlock);
  for (int64_t row = 0; row < round_up(num_rows, kMatrixRows); ++row) {
    const BFloat16* const source = rows.data + row * rows.stride;
    BFloat16* const target = out + row / kMatrixBlock * kMatrixBlock * padded + row % kMatrixBlock * kDepthBlock;
    for (int64_t k = 0; k < padded; k += kDepthBlock) {
      const __mmask32 mask = row < num_rows ? columns_mask(depth - k) : 0;
      _mm512_store_si512(target + k * kMatrixBlock, _mm512_maskz_loadu_epi16(mask, source + k));
    }
  }
}

// Rows [0, num_rows), as tiles, times some panels, of which `group` take turns while rows stay.
template <Activation kActivation, bool kRowsStay, class Results>
void multiply_groups(const BFloat16* rows, int64_t num_rows, const Layer& layer, Panels panels, int64_t group,
                     const Results& results, float* sums) {
  const int64_t depth = layer.padded_depth(), blocks = depth / kDepthBlock;
  const int64_t row_blocks = (num_rows + kMatrixBlock - 1) / kMatrixBlock;
  const int64_t finish_each = (kMatrixBlock + blocks - 1) / blocks;
  PendingBlock pending;
  for (int64_t first = panels.first; first < panels.end; first += group) {
    const int64_t end = std::min(panels.end, first + group);
    const int64_t lines = (std::min(panels.end, end + group) - end) * layer.panel_bytes() / kLineBytes;
    const int64_t steps = row_blocks * (end - first) * blocks;
    Prefetch prefetch{reinterpret_cast<const char*>(layer.panel(end)), lines, (lines + steps - 1) / steps};
    for (int64_t row = 0; row < num_rows; row += kMatrixBlock) {
      const BFloat16* const block = rows + row * depth;
      const int64_t left = std::min(kMatrixBlock, num_rows - row);
      for (int64_t p = first; p < end; ++p) {
        if (left > kMatrixRows)
          multiply_block<kActivation, true, kRowsStay>(block, layer.panel(p), blocks, sums, pending, finish_each, prefetch);
        else
          multiply_block<kActivation, false, kRowsStay>(block, layer.panel(p), blocks, sums, pending, finish_each, prefetch);
        pending = {sums, results.at(layer, row, p), left};
      }
    }
  }
  pending.finish<kActivation>(pending.rows);
}

// Rows [0, num_rows), as tiles, times some panels. `sums` has room for kSumsOfBlock. Beyond the last
// row, what fills up a block may be anything.
template <Activation kActivation, class Results>
void multiply_on_matrix(const BFloat16* rows, int64_t num_rows, const Layer& layer, Panels panels, const Results& results,
                        float* sums) {
  const TileConfig config = TileConfig::full();
  const Tiles tiles(config);
  finish_writes(rows);
  if (Results::kLiesInRows && layer.panel_bytes() <= kShortPanelBytes)
    multiply_groups<kActivation, true>(rows, num_rows, layer, panels, kGroupBytes / layer.panel_bytes(), results, sums);
  else
    multiply_groups<kActivation, false>(rows, num_rows, layer, panels, 1, results, sums);
}

}  // namespace infinity

#endif
