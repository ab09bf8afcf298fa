// Online softmax over blocks of keys (Milakov and Gimelshein 2018; Dao et al. 2022), and the
// functions it needs.
#pragma once

#include "kernel_common.h"
#include "tile.h"

#include <algorithm>

namespace infinity {

// Finite, so that (masked - masked) is 0 and not NaN.
constexpr float kMasked = -1e30f;
constexpr float kLog2E = 1.44269504088896341f, kLn2 = 0.69314718055994531f;

inline float reduce_max(Vec v) {
#if defined(__AVX512F__)
  return _mm512_reduce_max_ps((__m512)v);
#else
  float result = v[0];
  for (int i = 1; i < kLanes; ++i) result = std::max(result, v[i]);
  return result;
#endif
}
inline float reduce_add(Vec v) {
#if defined(__AVX512F__)
  return _mm512_reduce_add_ps((__m512)v);
#else
  float result = 0.f;
  for (int i = 0; i < kLanes; ++i) result += v[i];
  return result;
#endif
}

// exp(x) for x <= 0, relative error below 2e-7: x = n ln2 + r with |r| <= ln2 / 2, then the Taylor
// polynomial of degree 7 in r.
inline Vec exp_nonpositive(Vec x) {
  x = vmax(x, splat(-87.f));
  const Vec shifted = x * 1.44269504088896341f + 12582912.f;  // 1.5 * 2^23 rounds to an integer in the low bits
  const Vec n = shifted - 12582912.f;
  const Vec r = (x - n * 0.693359375f) - n * -2.12194440e-4f;
  Vec p = splat(1.f / 5040.f);
  p = p * r + 1.f / 720.f;
  p = p * r + 1.f / 120.f;
  p = p * r + 1.f / 24.f;
  p = p * r + 1.f / 6.f;
  p = p * r + 0.5f;
  p = p * r + 1.f;
  p = p * r + 1.f;
  const VecI exponent = (__builtin_convertvector(n, VecI) + 127) << 23;
  Vec scale;
  std::memcpy(&scale, &exponent, sizeof(scale));
  return p * scale;
}

#if defined(__AVX512BF16__)
// 2^t for t <= 0, relative error below 8e-5, a twenty-fifth of what rounding to bfloat16 adds:
// t = n + r with 0 <= r < 1, then the polynomial of degree 3 whose largest relative error is least.
inline Vec exp2_for_bfloat16(Vec t) {
  const Vec r = (Vec)_mm512_reduce_ps((__m512)t, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
  Vec p = splat(7.8024521e-2f);
  p = p * r + 2.2606716e-1f;
  p = p * r + 6.9583354e-1f;
  p = p * r + 9.9992522e-1f;
  return (Vec)_mm512_scalef_ps((__m512)p, (__m512)t);
}
#endif

// tanh(x), relative error below 3e-7. Near 0, where 1 - exp cancels, a series in odd powers: the
// continued fraction of tanh, x (10395 + 1260 z + 21 z^2) / (10395 + 4725 z + 210 z^2 + z^3) with
// z = x^2.
inline Vec tanh_vec(Vec x) {
  const Vec size = x < 0.f ? -x : x;
  const Vec decay = exp_nonpositive(size * -2.f);
  const Vec large = (1.f - decay) / (1.f + decay);
  const Vec z = x * x;
  const Vec small = x * ((z * 21.f + 1260.f) * z + 10395.f) / (((z + 210.f) * z + 4725.f) * z + 10395.f);
  return size < 0.5f ? small : (x < 0.f ? -large : large);
}

// exp(score * scale - top) of a row of scores into `weights`, and their sum, still one per lane.
template <class Step>
inline Vec store_numerators(const float* scores, int64_t columns, float scale, float top, float* weights) {
  Vec total{};
#if defined(__AVX512BF16__)
  if constexpr (Step::kDepth == 2) {
    const float scale2 = scale * kLog2E, top2 = top * kLog2E;
    for (int64_t c = 0; c < columns; c += kLanes) {
      const Vec p = exp2_for_bfloat16(load(scores + c) * scale2 - top2);
      total += p;
      const __m256bh half = _mm512_cvtneps_pbh((__m512)p);
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(reinterpret_cast<uint16_t*>(weights) + c), (__m256i)half);
    }
    return total;
  }
#endif
  for (int64_t c = 0; c < columns; c += kLanes) {
    const Vec p = exp_nonpositive(load(scores + c) * scale - top);
    total += p;
    store(weights + c, p);
  }
  return total;
}

// Softmax numerators of one row of scores into `weights`; keys outside [visible_from, visible_to)
// weigh nothing. Updates the running maximum and sum and returns the factor for what was summed
// before.
template <class Step>
inline float softmax_row(float* scores, int64_t columns, int64_t visible_from, int64_t visible_to, float scale, float* weights,
                         float* row_max, float* row_sum) {
  if (visible_from >= visible_to) {
    std::memset(weights, 0, columns * sizeof(typename Step::Element));
    return 1.f;
  }
  for (int64_t c = 0; c < visible_from; ++c) scores[c] = kMasked;
  for (int64_t c = visible_to; c < columns; ++c) scores[c] = kMasked;
  Vec top = splat(kMasked);
  for (int64_t c = 0; c < columns; c += kLanes) top = vmax(top, load(scores + c));
  const float new_max = std::max(*row_max, reduce_max(top) * scale);
  const float correction = *row_max == kMasked ? 0.f : exp_nonpositive(splat(*row_max - new_max))[0];
  const Vec total = store_numerators<Step>(scores, columns, scale, new_max, weights);
  *row_sum = *row_sum * correction + reduce_add(total);
  *row_max = new_max;
  return correction;
}

// What was summed over earlier blocks of keys, in terms of the new maximum.
inline void rescale(float* sums, int64_t columns, float correction) {
  for (int64_t d = 0; d < columns; d += kLanes) store(sums + d, load(sums + d) * correction);
}

// The sums hold whole vectors, what lies behind `dim` is not read from them.
template <class T>
inline void write_row(const float* sums, int64_t dim, float row_sum, T* out) {
  const float inverse = 1.f / row_sum;
  int64_t d = 0;
  for (; d + kLanes <= dim; d += kLanes) store_narrow(load(sums + d) * inverse, out + d);
  for (; d < dim; ++d) narrow(sums[d] * inverse, out + d);
}

}  // namespace infinity
