// Softmax of 16 rows of scores at a time, for products of tiles.
#pragma once

#if defined(__AMX_BF16__)

#include "amx.h"
#include "kernel_common.h"
#include "softmax.h"

#include <immintrin.h>

namespace infinity {

// Lane r of the result is all lanes of vector r together.
template <class Combine>
inline Vec reduce_rows(const Vec* rows, const Combine& combine) {
  __m512 quads[4], pairs[2];
  for (int i = 0; i < 4; ++i) {
    const auto row = [&](int r) { return (__m512)rows[4 * i + r]; };
    const __m512 low = combine(_mm512_unpacklo_ps(row(0), row(1)), _mm512_unpackhi_ps(row(0), row(1)));
    const __m512 high = combine(_mm512_unpacklo_ps(row(2), row(3)), _mm512_unpackhi_ps(row(2), row(3)));
    quads[i] = combine((__m512)_mm512_unpacklo_pd((__m512d)low, (__m512d)high),
                       (__m512)_mm512_unpackhi_pd((__m512d)low, (__m512d)high));
  }
  const auto across = [&](__m512 a, __m512 b) {
    return combine(_mm512_shuffle_f32x4(a, b, 0x88), _mm512_shuffle_f32x4(a, b, 0xdd));
  };
  for (int i = 0; i < 2; ++i) pairs[i] = across(quads[2 * i], quads[2 * i + 1]);
  return (Vec)across(pairs[0], pairs[1]);
}

// Keys [from, to) are visible to a row.
struct Visible {
  int64_t from, to;
  bool is_empty() const { return from >= to; }
};

// The other scores of a row count for nothing.
inline void mask_scores(float* scores, int64_t columns, Visible visible) {
  for (int64_t c = 0; c < visible.from; c += kLanes)
    _mm512_mask_storeu_ps(scores + c, first_lanes(visible.from - c), (__m512)splat(kMasked));
  for (int64_t c = visible.to / kLanes * kLanes; c < columns; c += kLanes)
    _mm512_mask_storeu_ps(scores + c, static_cast<__mmask16>(~first_lanes(visible.to - c)), (__m512)splat(kMasked));
}

// The largest visible score of a row, still one per lane.
inline Vec top_of(float* scores, int64_t columns, Visible visible) {
  mask_scores(scores, columns, visible);
  Vec top = load(scores), other = top;
  int64_t c = kLanes;
  for (; c + kLanes < columns; c += 2 * kLanes) {
    top = vmax(top, load(scores + c));
    other = vmax(other, load(scores + c + kLanes));
  }
  if (c < columns) top = vmax(top, load(scores + c));
  return vmax(top, other);
}

// The same where all are visible but lanes of the last vector that `last` lacks.
inline Vec top_of_all(const float* scores, int64_t columns, __mmask16 last) {
  const int64_t end = columns - kLanes;
  Vec top = (Vec)_mm512_mask_loadu_ps((__m512)splat(kMasked), last, scores + end), other = splat(kMasked);
  int64_t c = 0;
  for (; c + kLanes < end; c += 2 * kLanes) {
    top = vmax(top, load(scores + c));
    other = vmax(other, load(scores + c + kLanes));
  }
  if (c < end) top = vmax(top, load(scores + c));
  return vmax(top, other);
}

// 2^(score * scale2 - top2) of a row, over the scores themselves, as bfloat16, zero-filled up to
// whole tiles; and their sum, still one per lane. Lanes of the last vector that `last` lacks are zero.
inline Vec store_weights(float* scores, int64_t columns, __mmask16 last, float scale2, float top2) {
  BFloat16* const weights = reinterpret_cast<BFloat16*>(scores);
  const auto weights_of = [&](int64_t c) { return exp2_for_bfloat16(load(scores + c) * scale2 - top2); };
  const auto last_weights = [&](int64_t c) { return (Vec)_mm512_maskz_mov_ps(last, (__m512)weights_of(c)); };
  const auto store_pair = [&](int64_t c, Vec a, Vec b) {
    _mm512_storeu_si512(weights + c, (__m512i)_mm512_cvtne2ps_pbh((__m512)b, (__m512)a));
  };
  Vec even{}, odd{};
  int64_t c = 0;
  for (; c + 2 * kLanes < columns; c += 2 * kLanes) {
    const Vec a = weights_of(c), b = weights_of(c + kLanes);
    even += a;
    odd += b;
    store_pair(c, a, b);
  }
  const bool is_pair = c + kLanes < columns;
  const Vec a = is_pair ? weights_of(c) : last_weights(c), b = is_pair ? last_weights(c + kLanes) : Vec{};
  even += a;
  odd += b;
  store_pair(c, a, b);
  return even + odd;
}

// The same where no key is visible.
inline Vec store_no_weights(float* scores, int64_t columns) {
  BFloat16* const weights = reinterpret_cast<BFloat16*>(scores);
  for (int64_t c = 0; c < columns; c += 2 * kLanes) _mm512_storeu_si512(weights + c, _mm512_setzero_si512());
  return Vec{};
}

// The same of 16 rows of up to 16 keys, all visible: short texts spend most of their time here.
inline void tops_of_narrow(const float* scores, int64_t stride, __mmask16 visible, Vec* tops) {
#pragma GCC unroll 16
  for (int r = 0; r < kMatrixRows; ++r)
    tops[r] = (Vec)_mm512_mask_loadu_ps((__m512)splat(kMasked), visible, scores + r * stride);
}

inline void store_narrow_weights(float* scores, int64_t stride, __mmask16 visible, float scale2, const float* tops, Vec* totals) {
#pragma GCC unroll 16
  for (int r = 0; r < kMatrixRows; ++r) {
    float* const row = scores + r * stride;
    totals[r] = (Vec)_mm512_maskz_mov_ps(visible, (__m512)exp2_for_bfloat16(load(row) * scale2 - tops[r]));
    _mm512_storeu_si512(row, (__m512i)_mm512_cvtne2ps_pbh(_mm512_setzero_ps(), (__m512)totals[r]));
  }
}

}  // namespace infinity

#endif
