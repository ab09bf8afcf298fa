// What is known of the columns of an 8-bit product, and what becomes of its sums.
#pragma once

#include "activation.h"
#include "int8_rows.h"
#include "kernel_common.h"

#include <immintrin.h>

namespace infinity {

// A panel holds kPanel columns; step s of it holds, column by column, the kStepDepth numbers of the
// rows 4 s to 4 s + 3.
constexpr int64_t kStepDepth = 4;
constexpr int64_t kPanel = 64;

struct Columns {
  const int32_t* sums;  // of its weights, times the zero of the rows
  const float* scales;
  const float* bias;  // or null

  Columns from(int64_t column) const { return {sums + column, scales + column, bias ? bias + column : nullptr}; }
};

// The same of 16 columns, in registers; those outside the mask are zero.
struct ColumnVecs {
  __m512 scales, bias;

  ColumnVecs(const Columns& columns, int64_t first, __mmask16 mask)
      : scales(_mm512_maskz_loadu_ps(mask, columns.scales + first)),
        bias(columns.bias ? _mm512_maskz_loadu_ps(mask, columns.bias + first) : _mm512_setzero_ps()) {}

  // The numbers that stand for these sums, less what the rows' zero adds to them.
  template <Activation kActivation>
  __m512 finish(__m512i sums, __m512 row_scale) const {
    const __m512 scale = _mm512_mul_ps(scales, row_scale);
    return (__m512)activate<kActivation>((Vec)_mm512_fmadd_ps(_mm512_cvtepi32_ps(sums), scale, bias));
  }
};

}  // namespace infinity
