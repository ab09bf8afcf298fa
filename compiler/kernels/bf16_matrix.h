// Blocks of 32 bfloat16 rows times a panel of 32 columns on the matrix unit.
//
// While a block is multiplied, the vector units finish the sums of the one before.
#pragma once

#include "amx.h"
#include "bf16_tile.h"

#if defined(__AMX_BF16__)

namespace infinity {

constexpr int64_t kMatrixBlock = 2 * kMatrixRows;  // rows of a block
constexpr int64_t kLineBytes = 64;

// Up to 32 rows as the matrix unit reads them: `step` elements from one block of depth to the next,
// `stride` bytes from row to row.
struct MatrixRows {
  const BFloat16 *upper, *lower;
  int64_t step, stride;
};

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
  int64_t left;  // lines

  inline void fetch(int64_t lines) {
    for (int64_t i = std::min(lines, left); i > 0; --i, --left, next += kLineBytes) _mm_prefetch(next, _MM_HINT_T1);
  }
};

// Two tiles of rows times two tiles of columns: four of the eight tiles hold sums.
template <Activation kActivation, bool kBoth>
inline void multiply_matrix(const MatrixRows& rows, const BFloat16* panel, int64_t blocks, float* sums, PendingBlock& pending,
                            int64_t finish_each, Prefetch& prefetch, int64_t fetch_each, const PendingBlock& own) {
  int64_t fetched = 0;
  _tile_zero(0);
  _tile_zero(1);
  if (kBoth) {
    _tile_zero(2);
    _tile_zero(3);
  }
  for (int64_t block = 0; block < blocks; ++block, panel += kPanelBlock) {
    _tile_loadd(4, rows.upper + block * rows.step, rows.stride);
    _tile_loadd(6, panel, kMatrixRowBytes);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(7, panel + kHalf, kMatrixRowBytes);
    _tile_dpbf16ps(1, 4, 7);
    if (kBoth) {
      _tile_loadd(5, rows.lower + block * rows.step, rows.stride);
      _tile_dpbf16ps(2, 5, 6);
      _tile_dpbf16ps(3, 5, 7);
    }
    prefetch.fetch(fetch_each);
    for (const int64_t end = std::min(own.rows, fetched + finish_each); fetched < end; ++fetched) own.epilogue.fetch(fetched);
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

}  // namespace infinity

#endif
