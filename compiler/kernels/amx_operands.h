// Keys and values as right-hand sides of tile products, and the products.
//
// A tile of a right-hand side holds 16 columns of 16 pairs of neighbouring numbers, 1 KiB; tiles lie
// one after the other, so that each is one read of memory.
#pragma once

#if defined(__AMX_BF16__)

#include "amx.h"
#include "kernel_common.h"

#include <immintrin.h>

#include <algorithm>

namespace infinity {

constexpr int64_t kTileDepth = 32;                       // numbers that one product of tiles sums over
constexpr int64_t kTileSize = kMatrixRows * kTileDepth;  // numbers of a tile

// Numbers [16 L, 16 L + 16) of four rows side by side.
inline __m512i load_quarters(const BFloat16* a, const BFloat16* b, const BFloat16* c, const BFloat16* d) {
  const auto at = [](const BFloat16* p) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p)); };
  const __m512i first = _mm512_inserti32x4(_mm512_castsi128_si512(at(a)), at(b), 1);
  return _mm512_inserti32x4(_mm512_inserti32x4(first, at(c), 2), at(d), 3);
}

// One tile out of 32 numbers of 16 keys: the pairs of each key become a column.
inline void pack_key_tile(const BFloat16* const* keys, int64_t first, BFloat16* out) {
  for (int64_t i = 0; i < kTileDepth; i += 8, out += 4 * kTileDepth) {
    __m512i x[4];
    for (int j = 0; j < 4; ++j)
      x[j] = load_quarters(keys[j] + first + i, keys[4 + j] + first + i, keys[8 + j] + first + i, keys[12 + j] + first + i);
    const __m512i even = _mm512_unpacklo_epi32(x[0], x[1]), odd = _mm512_unpacklo_epi32(x[2], x[3]);
    const __m512i even_high = _mm512_unpackhi_epi32(x[0], x[1]), odd_high = _mm512_unpackhi_epi32(x[2], x[3]);
    _mm512_storeu_si512(out, _mm512_unpacklo_epi64(even, odd));
    _mm512_storeu_si512(out + kTileDepth, _mm512_unpackhi_epi64(even, odd));
    _mm512_storeu_si512(out + 2 * kTileDepth, _mm512_unpacklo_epi64(even_high, odd_high));
    _mm512_storeu_si512(out + 3 * kTileDepth, _mm512_unpackhi_epi64(even_high, odd_high));
  }
}

// Rows as left-hand side: `count` of `dim` numbers, zero-filled up to `width`.
template <class Row>
inline void copy_rows(const Row& row, int64_t count, int64_t dim, BFloat16* out, int64_t width) {
  for (int64_t r = 0; r < count; ++r, out += width) {
    const BFloat16* const source = row(r);
    for (int64_t d = 0; d < width; d += kTileDepth)
      _mm512_storeu_si512(out + d, _mm512_maskz_loadu_epi16(first_lanes32(dim - d), source + d));
  }
}

// Keys as right-hand side of Q K^T: [keys / 16][dim / 32] tiles. Columns behind the last key repeat
// it. `spare` has room for 16 rows of `width` numbers, which is `dim` rounded up to whole tiles.
template <class Row>
inline void pack_key_tiles(const Row& row, int64_t keys, int64_t dim, int64_t width, BFloat16* spare, BFloat16* out) {
  for (int64_t k = 0; k < keys; k += kMatrixRows) {
    const BFloat16* lines[kMatrixRows];
    const int64_t count = std::min<int64_t>(kMatrixRows, keys - k);
    if (dim != width) copy_rows([&](int64_t i) { return row(k + i); }, count, dim, spare, width);
    for (int64_t i = 0; i < kMatrixRows; ++i) {
      const int64_t source = std::min(i, count - 1);
      lines[i] = dim == width ? row(k + source) : spare + source * width;
    }
    for (int64_t d = 0; d < width; d += kTileDepth, out += kTileSize) pack_key_tile(lines, d, out);
  }
}

// 32 numbers of two neighbouring keys as a row of two tiles: of each eight numbers the first four
// go to one tile, the others to the other, as the instruction wants it. `restore_order` undoes it.
inline void store_value_pair(__m512i even, __m512i odd, BFloat16* out) {
  _mm512_storeu_si512(out, _mm512_unpacklo_epi16(even, odd));
  _mm512_storeu_si512(out + kTileSize, _mm512_unpackhi_epi16(even, odd));
}

inline __m512i restore_order(__m512i numbers) {
  return _mm512_permutexvar_epi64(_mm512_setr_epi64(0, 4, 1, 5, 2, 6, 3, 7), numbers);
}

// Values as right-hand side of P V: [keys / 32][dim / 16] tiles, zero behind the last key.
template <class Row>
inline void pack_value_tiles(const Row& row, int64_t keys, int64_t dim, int64_t width, BFloat16* out) {
  for (int64_t k = 0; k < keys; k += kTileDepth, out += kTileDepth * width)
    for (int64_t i = 0; i < kTileDepth; i += 2) {
      const bool has_even = k + i < keys, has_odd = k + i + 1 < keys;
      const BFloat16 *const even = has_even ? row(k + i) : nullptr, *const odd = has_odd ? row(k + i + 1) : nullptr;
      for (int64_t d = 0; d < width; d += kTileDepth) {
        const __mmask32 mask = first_lanes32(dim - d);
        store_value_pair(_mm512_maskz_loadu_epi16(has_even ? mask : 0, even + d),
                         _mm512_maskz_loadu_epi16(has_odd ? mask : 0, odd + d), out + i / 2 * kTileDepth + d * kTileDepth);
      }
    }
}

// Left-hand side: 16 rows; `stride` counts numbers.
struct TileRows {
  const BFloat16* first;
  int64_t stride;
};

// Sums of kTiles tiles of columns, in tiles 0 to 3: `steps` products each. The right-hand sides lie
// `column_step` apart by column and `depth_step` by step, in numbers.
template <int kTiles>
inline void multiply_strip(TileRows rows, const BFloat16* columns, int64_t column_step, int64_t depth_step, int64_t steps,
                           float* out, int64_t stride) {
  const int64_t row_bytes = rows.stride * sizeof(BFloat16), out_bytes = stride * sizeof(float);
  _tile_zero(0);
  if constexpr (kTiles > 1) _tile_zero(1);
  if constexpr (kTiles > 2) _tile_zero(2);
  if constexpr (kTiles > 3) _tile_zero(3);
  for (int64_t s = 0; s < steps; ++s, rows.first += kTileDepth, columns += depth_step) {
    _tile_loadd(4, rows.first, row_bytes);
    _tile_loadd(5, columns, kMatrixRowBytes);
    _tile_dpbf16ps(0, 4, 5);
    if constexpr (kTiles > 1) {
      _tile_loadd(6, columns + column_step, kMatrixRowBytes);
      _tile_dpbf16ps(1, 4, 6);
    }
    if constexpr (kTiles > 2) {
      _tile_loadd(7, columns + 2 * column_step, kMatrixRowBytes);
      _tile_dpbf16ps(2, 4, 7);
    }
    if constexpr (kTiles > 3) {
      _tile_loadd(5, columns + 3 * column_step, kMatrixRowBytes);
      _tile_dpbf16ps(3, 4, 5);
    }
  }
  _tile_stored(0, out, out_bytes);
  if constexpr (kTiles > 1) _tile_stored(1, out + kMatrixRows, out_bytes);
  if constexpr (kTiles > 2) _tile_stored(2, out + 2 * kMatrixRows, out_bytes);
  if constexpr (kTiles > 3) _tile_stored(3, out + 3 * kMatrixRows, out_bytes);
}

// C[16, 16 tiles] = A[16, 32 steps] B.
inline void multiply_tiles(TileRows rows, const BFloat16* columns, int64_t column_step, int64_t depth_step, int64_t tiles,
                           int64_t steps, float* out, int64_t stride) {
  finish_writes(rows.first);
  for (; tiles >= 4; tiles -= 4, columns += 4 * column_step, out += 4 * kMatrixRows)
    multiply_strip<4>(rows, columns, column_step, depth_step, steps, out, stride);
  if (tiles == 3) multiply_strip<3>(rows, columns, column_step, depth_step, steps, out, stride);
  if (tiles == 2) multiply_strip<2>(rows, columns, column_step, depth_step, steps, out, stride);
  if (tiles == 1) multiply_strip<1>(rows, columns, column_step, depth_step, steps, out, stride);
}

}  // namespace infinity

#endif
