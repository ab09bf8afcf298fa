// Rows of activations as unsigned 8-bit numbers around 128, each with a scale of its own.
//
// Unsigned, because the instructions multiply unsigned by signed numbers; what the 128s add to a sum
// is the same in every row, see Columns::sums.
#pragma once

#include "kernel_common.h"

#include <immintrin.h>

#include <algorithm>

namespace infinity {

constexpr int64_t kRowBlock = 64;  // quantized rows are filled up to a multiple of it

struct SourceRows {
  const BFloat16* data;
  int64_t stride, depth;
  const float* factors;  // of the columns of a row, or null

  int64_t padded_depth() const { return round_up(depth, kRowBlock); }
};

inline __mmask16 mask_of(int64_t left) { return left >= kLanes ? 0xffff : static_cast<__mmask16>((1u << left) - 1); }

// Writes the row times the factors, filled up with zeros, and returns its largest absolute value. As
// whole numbers the bits of absolute values are in the order of the values, and NaN is the largest.
template <bool kHasFactors>
inline float widen_row(const SourceRows& rows, const BFloat16* row, float* out) {
  const __m512i without_sign = _mm512_set1_epi32(0x7fffffff);
  __m512i top = _mm512_setzero_si512();
  const auto widen_lanes = [&](int64_t k, __m256i bits, __mmask16 mask) {
    __m512 values = (__m512)_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16);
    if (kHasFactors) values = _mm512_mul_ps(values, _mm512_maskz_loadu_ps(mask, rows.factors + k));
    _mm512_store_ps(out + k, values);
    top = _mm512_max_epu32(top, _mm512_and_si512((__m512i)values, without_sign));
  };
  int64_t k = 0;
  for (; k + kLanes <= rows.depth; k += kLanes)
    widen_lanes(k, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(row + k)), 0xffff);
  for (; k < rows.padded_depth(); k += kLanes) {
    const __mmask16 mask = mask_of(std::max<int64_t>(rows.depth - k, 0));
    widen_lanes(k, _mm256_maskz_loadu_epi16(mask, row + k), mask);
  }
  const uint32_t largest = _mm512_reduce_max_epu32(top);
  float result;
  std::memcpy(&result, &largest, sizeof(result));
  return result;
}

// Writes padded_depth() numbers of one row and returns what one step of them is worth. A row of zeros
// stays one. `widened` has room for as many floats.
inline float quantize_row(const SourceRows& rows, int64_t index, float* widened, uint8_t* out) {
  constexpr float kLargest = 127.f, kSmallestScale = 1.17549435e-38f;
  const BFloat16* const row = rows.data + index * rows.stride;
  const float largest = rows.factors ? widen_row<true>(rows, row, widened) : widen_row<false>(rows, row, widened);
  const float scale = std::max(largest / kLargest, kSmallestScale);
  const __m512 inverse = _mm512_set1_ps(1.f / scale);
  const auto numbers = [&](int64_t k) { return _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_load_ps(widened + k), inverse)); };
  // Packing leaves four numbers of each vector in each quarter.
  const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  for (int64_t k = 0; k < rows.padded_depth(); k += kRowBlock) {
    const __m512i low = _mm512_packs_epi32(numbers(k), numbers(k + kLanes));
    const __m512i high = _mm512_packs_epi32(numbers(k + 2 * kLanes), numbers(k + 3 * kLanes));
    const __m512i packed = _mm512_permutexvar_epi32(order, _mm512_packs_epi16(low, high));
    _mm512_storeu_si512(out + k, _mm512_xor_si512(packed, _mm512_set1_epi8(-128)));
  }
  return scale;
}

}  // namespace infinity
