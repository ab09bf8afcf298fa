// Rows of activations as unsigned 8-bit numbers around 128, each with a scale of its own.
//
// Unsigned, because the instruction multiplies unsigned by signed numbers; what the 128s add to a sum
// is the same in every row, see Columns::sums.
#pragma once

#include "kernel_common.h"
#include "softmax.h"

namespace infinity {

struct SourceRows {
  const BFloat16* data;
  int64_t stride, depth;
  const float* factors;  // of the columns of a row, or null
};

// 16 numbers of a row from `k` on, those outside `mask` zero.
inline Vec load_factored(const SourceRows& rows, const BFloat16* row, int64_t k, __mmask16 mask) {
  const __m512i bits = _mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, row + k)), 16);
  const Vec values = (Vec)_mm512_castsi512_ps(bits);
  return rows.factors ? values * (Vec)_mm512_maskz_loadu_ps(mask, rows.factors + k) : values;
}

inline __mmask16 mask_of(int64_t left) { return left >= kLanes ? 0xffff : static_cast<__mmask16>((1u << left) - 1); }

// Writes the numbers of one row and returns what one step of them is worth. A row of zeros stays one.
inline float quantize_row(const SourceRows& rows, int64_t index, uint8_t* out) {
  constexpr float kLargest = 127.f, kSmallestScale = 1.17549435e-38f;
  const BFloat16* const row = rows.data + index * rows.stride;
  __m512 top = _mm512_setzero_ps();
  for (int64_t k = 0; k < rows.depth; k += kLanes)
    top = _mm512_max_ps(top, _mm512_abs_ps((__m512)load_factored(rows, row, k, mask_of(rows.depth - k))));
  const float scale = std::max(_mm512_reduce_max_ps(top) / kLargest, kSmallestScale);
  const float inverse = 1.f / scale;
  for (int64_t k = 0; k < rows.depth; k += kLanes) {
    const __mmask16 mask = mask_of(rows.depth - k);
    const __m512i numbers = _mm512_cvtps_epi32((__m512)(load_factored(rows, row, k, mask) * inverse));
    _mm_mask_storeu_epi8(out + k, mask, _mm512_cvtepi32_epi8(_mm512_add_epi32(numbers, _mm512_set1_epi32(128))));
  }
  return scale;
}

}  // namespace infinity
