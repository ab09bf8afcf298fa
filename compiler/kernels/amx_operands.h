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

// A row of pairs: `dim` numbers of two keys, zero-filled up to `width`.
inline void pack_value_row(const BFloat16* even, const BFloat16* odd, int64_t dim, int64_t width, BFloat16* out) {
  int64_t d = 0;
  for (; d + kTileDepth <= dim; d += kTileDepth)
    store_value_pair(_mm512_loadu_si512(even + d), _mm512_loadu_si512(odd + d), out + d * kTileDepth);
  if (d == width) return;
  const __mmask32 mask = first_lanes32(dim - d);
  store_value_pair(_mm512_maskz_loadu_epi16(mask, even + d), _mm512_maskz_loadu_epi16(mask, odd + d), out + d * kTileDepth);
}

// Values as right-hand side of P V: [keys / 32][dim / 16] tiles, zero behind the last key. `zeros`
// are as many as a value has numbers.
template <class Row>
inline void pack_value_tiles(const Row& row, int64_t keys, int64_t dim, int64_t width, const BFloat16* zeros, BFloat16* out) {
  for (int64_t k = 0; k < keys; k += kTileDepth, out += kTileDepth * width) {
    const int64_t count = std::min(kTileDepth, keys - k);
    for (int64_t i = 0; i < count; i += 2)
      pack_value_row(row(k + i), i + 1 < count ? row(k + i + 1) : zeros, dim, width, out + i / 2 * kTileDepth);
    for (int64_t i = round_up(count, 2); i < kTileDepth; i += 2)
      pack_value_row(zeros, zeros, dim, width, out + i / 2 * kTileDepth);
  }
}

// Left-hand side: rows of numbers, `stride` of them apart.
struct TileRows {
  const BFloat16* first;
  int64_t stride;
};

// Right-hand side: tiles that lie so many numbers apart by 16 columns and by 32 numbers of depth.
struct TileColumns {
  const BFloat16* first;
  int64_t column_step, depth_step;
};

struct TileSums {
  float* first;
  int64_t stride;
};

// Products of 16 rows with kTiles tiles of columns, over `steps` tiles of depth.
template <int kTiles>
inline void multiply_rows16(TileRows a, TileColumns b, TileSums c, int64_t steps) {
  const int64_t a_bytes = a.stride * sizeof(BFloat16), c_bytes = c.stride * sizeof(float);
  _tile_zero(0);
  if constexpr (kTiles > 1) _tile_zero(1);
  if constexpr (kTiles > 2) _tile_zero(2);
  if constexpr (kTiles > 3) _tile_zero(3);
  for (int64_t s = 0; s < steps; ++s, a.first += kTileDepth, b.first += b.depth_step) {
    _tile_loadd(4, a.first, a_bytes);
    _tile_loadd(5, b.first, kMatrixRowBytes);
    _tile_dpbf16ps(0, 4, 5);
    if constexpr (kTiles > 1) {
      _tile_loadd(6, b.first + b.column_step, kMatrixRowBytes);
      _tile_dpbf16ps(1, 4, 6);
    }
    if constexpr (kTiles > 2) {
      _tile_loadd(7, b.first + 2 * b.column_step, kMatrixRowBytes);
      _tile_dpbf16ps(2, 4, 7);
    }
    if constexpr (kTiles > 3) {
      _tile_loadd(5, b.first + 3 * b.column_step, kMatrixRowBytes);
      _tile_dpbf16ps(3, 4, 5);
    }
  }
  _tile_stored(0, c.first, c_bytes);
  if constexpr (kTiles > 1) _tile_stored(1, c.first + kMatrixRows, c_bytes);
  if constexpr (kTiles > 2) _tile_stored(2, c.first + 2 * kMatrixRows, c_bytes);
  if constexpr (kTiles > 3) _tile_stored(3, c.first + 3 * kMatrixRows, c_bytes);
}

// C[16, 16 tiles] = A[16, 32 steps] B.
inline void multiply_tiles(TileRows a, TileColumns b, TileSums c, int64_t tiles, int64_t steps) {
  finish_writes(a.first);
  for (; tiles > 0; tiles -= 4, b.first += 4 * b.column_step, c.first += 4 * kMatrixRows) {
    if (tiles >= 4)
      multiply_rows16<4>(a, b, c, steps);
    else if (tiles == 3)
      multiply_rows16<3>(a, b, c, steps);
    else
      tiles == 2 ? multiply_rows16<2>(a, b, c, steps) : multiply_rows16<1>(a, b, c, steps);
  }
}

}  // namespace infinity

#endif
