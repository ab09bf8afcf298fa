// A few 8-bit rows times one panel of 8-bit columns, out of registers.
#pragma once

#include "int8_columns.h"

#include <immintrin.h>

namespace infinity {

constexpr int kTileRows = 6;  // with four vectors of columns: 24 of the 32 registers hold sums

struct Tile {
  const uint8_t* rows;
  int64_t row_stride, depth;  // numbers from row to row, and of a row
  const int8_t* panel;
  const float* row_scales;
  Columns columns;
  Activation activation;
  BFloat16* out;
  int64_t out_stride, num_columns;
};

template <Activation kActivation, int kRows, int kVecs>
inline void finish_all(const __m512i (&sums)[kRows][kVecs], const Tile& t) {
  for (int v = 0; v < kVecs; ++v) {
    const __mmask16 mask = mask_of(t.num_columns - v * kLanes);
    const ColumnVecs columns(t.columns, v * kLanes, mask);
    const __m512i of_zeros = _mm512_maskz_loadu_epi32(mask, t.columns.sums + v * kLanes);
    for (int r = 0; r < kRows; ++r) {
      const __m512i centred = _mm512_sub_epi32(sums[r][v], of_zeros);
      const __m512 value = columns.finish<kActivation>(centred, _mm512_set1_ps(t.row_scales[r]));
      _mm256_mask_storeu_epi16(t.out + r * t.out_stride + v * kLanes, mask, (__m256i)_mm512_cvtneps_pbh(value));
    }
  }
}

// sum + four unsigned times four signed numbers in each lane. GCC copies the sums of the intrinsic
// from register to register, which costs more than the products.
inline __m512i multiply_add(__m512i sum, __m512i rows, __m512i columns) {
  asm("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(rows), "v"(columns));
  return sum;
}

template <int kRows, int kVecs>
inline void multiply_tile(const Tile& t) {
  __m512i sums[kRows][kVecs];
#pragma GCC unroll 6
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < kVecs; ++v) sums[r][v] = _mm512_setzero_si512();
  const int8_t* step = t.panel;
  const uint8_t* rows = t.rows;
  const int64_t depth = t.depth;
  for (int64_t k = 0; k < depth; k += kStepDepth, step += kPanel * kStepDepth) {
    __m512i columns[kVecs];
#pragma GCC unroll 4
    for (int v = 0; v < kVecs; ++v) columns[v] = _mm512_loadu_si512(step + v * kLanes * kStepDepth);
#pragma GCC unroll 6
    for (int r = 0; r < kRows; ++r) {
      int32_t four;
      std::memcpy(&four, rows + r * t.row_stride + k, sizeof(four));
      const __m512i row = _mm512_set1_epi32(four);
#pragma GCC unroll 4
      for (int v = 0; v < kVecs; ++v) sums[r][v] = multiply_add(sums[r][v], row, columns[v]);
    }
  }
  // A copy: an array that others refer to would not stay in registers.
  __m512i found[kRows][kVecs];
#pragma GCC unroll 6
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < kVecs; ++v) found[r][v] = sums[r][v];
  with_activation(t.activation, [&](auto activation) { finish_all<decltype(activation)::value>(found, t); });
}

template <int kRows>
inline void run_rows(const Tile& t) {
  switch ((t.num_columns + kLanes - 1) / kLanes) {
    case 1: return multiply_tile<kRows, 1>(t);
    case 2: return multiply_tile<kRows, 2>(t);
    case 3: return multiply_tile<kRows, 3>(t);
    default: return multiply_tile<kRows, 4>(t);
  }
}

// `rows` is at most kTileRows.
inline void run_tile(const Tile& t, int64_t rows) {
  switch (rows) {
    case 1: return run_rows<1>(t);
    case 2: return run_rows<2>(t);
    case 3: return run_rows<3>(t);
    case 4: return run_rows<4>(t);
    case 5: return run_rows<5>(t);
    default: return run_rows<6>(t);
  }
}

}  // namespace infinity
