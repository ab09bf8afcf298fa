// What becomes of the float32 sums of a bfloat16 product: bias, a function, something added, one rounding.
#pragma once

#include "activation.h"
#include "kernel_common.h"

#include <immintrin.h>

namespace infinity {

constexpr int64_t kPanel = 32;       // columns that lie together
constexpr int64_t kDepthBlock = 32;  // rows of a panel that lie together
constexpr int64_t kPanelBlock = kPanel * kDepthBlock;
constexpr int64_t kHalf = kPanelBlock / 2;  // of 16 columns: one vector for each pair of rows

// `columns` bits, at most 32.
inline __mmask32 columns_mask(int64_t columns) { return columns >= kPanel ? ~0u : (1u << columns) - 1; }

inline __m512 widen_lanes(__m256i numbers) { return (__m512)_mm512_slli_epi32(_mm512_cvtepu16_epi32(numbers), 16); }

// Where the columns of one panel go, and what goes with them.
struct Epilogue {
  const float* bias;         // of the panel's columns, or null
  const BFloat16* residual;  // of the first row and the panel's first column, or null
  int64_t residual_stride;
  BFloat16* out;  // the same of the result
  int64_t out_stride;
  __mmask32 mask;

  // From sums of `row`, 16 and 16 columns.
  template <Activation kActivation>
  inline void finish(int64_t row, __m512 low, __m512 high) const {
    const __mmask16 masks[2] = {static_cast<__mmask16>(mask), static_cast<__mmask16>(mask >> 16)};
    __m512 values[2] = {low, high};
    for (int v = 0; v < 2; ++v) {
      if (bias) values[v] = _mm512_add_ps(values[v], _mm512_maskz_loadu_ps(masks[v], bias + v * kLanes));
      values[v] = (__m512)activate<kActivation>((Vec)values[v]);
      if (residual) {
        const BFloat16* const other = residual + row * residual_stride + v * kLanes;
        values[v] = _mm512_add_ps(values[v], widen_lanes(_mm256_maskz_loadu_epi16(masks[v], other)));
      }
    }
    _mm512_mask_storeu_epi16(out + row * out_stride, mask, (__m512i)_mm512_cvtne2ps_pbh(values[1], values[0]));
  }
};

}  // namespace infinity
