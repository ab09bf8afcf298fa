// Small matrix products out of registers, and the packing of their operands.
//
// Vector width and bfloat16 products follow the compile flags: -march=x86-64-v3 gives AVX2,
// x86-64-v4 AVX-512, and -mavx512bf16 multiplies bfloat16 pairs in hardware; without it bfloat16 is
// widened to float32 while it is copied.
#pragma once

#include "kernel_common.h"

#include <immintrin.h>

#include <cstdint>
#include <cstring>
#include <type_traits>

namespace infinity {

// What one step of a dot product multiplies: one float32, or one pair of bfloat16 held in 32 bits.
struct FloatStep {
  using Element = float;
  static constexpr int64_t kDepth = 1;
  static inline Vec multiply_add(float a, const float* b, Vec sum) { return load(b) * a + sum; }
};

#if defined(__AVX512BF16__)
struct PairStep {
  using Element = BFloat16;
  static constexpr int64_t kDepth = 2;
  static inline Vec multiply_add(float pair, const float* b, Vec sum) {
    int32_t bits;
    std::memcpy(&bits, &pair, sizeof(bits));
    const __m512i rows = _mm512_set1_epi32(bits);
    const __m512i columns = _mm512_loadu_si512(b);
    return (Vec)_mm512_dpbf16_ps((__m512)sum, (__m512bh)rows, (__m512bh)columns);
  }
};
template <class T>
using StepOf = std::conditional_t<std::is_same_v<T, BFloat16>, PairStep, FloatStep>;
#else
template <class T>
using StepOf = FloatStep;
#endif

template <class Step>
inline int64_t steps_of(int64_t elements) {
  return (elements + Step::kDepth - 1) / Step::kDepth;
}

// C[rows, columns] (+)= A[rows, steps] B[steps, columns]. A and B hold one step per float; columns
// is a multiple of kLanes.
template <class Step, int kRows, int kVecs>
inline void tile(const float* a, int64_t a_row, const float* b, int64_t b_row, float* c, int64_t c_row, int64_t steps,
                 bool accumulate) {
  // Unrolled early, so that the sums are registers from the beginning and not an array on the stack.
  Vec sum[kRows][kVecs];
#pragma GCC unroll 6
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < kVecs; ++v) sum[r][v] = Vec{};
  if (accumulate) {
#pragma GCC unroll 6
    for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
      for (int v = 0; v < kVecs; ++v) sum[r][v] = load(c + r * c_row + v * kLanes);
  }
  for (int64_t s = 0; s < steps; ++s) {
#pragma GCC unroll 6
    for (int r = 0; r < kRows; ++r) {
      const float x = a[r * a_row + s];
#pragma GCC unroll 4
      for (int v = 0; v < kVecs; ++v) sum[r][v] = Step::multiply_add(x, b + s * b_row + v * kLanes, sum[r][v]);
    }
  }
#pragma GCC unroll 6
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < kVecs; ++v) store(c + r * c_row + v * kLanes, sum[r][v]);
}

template <class Step, int kVecs>
inline void column_strip(const float* a, int64_t a_row, const float* b, int64_t b_row, float* c, int64_t c_row, int64_t rows,
                         int64_t steps, bool accumulate) {
  constexpr int kRows = kLanes == 16 ? 6 : 4;
  int64_t r = 0;
  for (; r + kRows <= rows; r += kRows)
    tile<Step, kRows, kVecs>(a + r * a_row, a_row, b, b_row, c + r * c_row, c_row, steps, accumulate);
  for (; r + 2 <= rows; r += 2)
    tile<Step, 2, kVecs>(a + r * a_row, a_row, b, b_row, c + r * c_row, c_row, steps, accumulate);
  for (; r < rows; ++r) tile<Step, 1, kVecs>(a + r * a_row, a_row, b, b_row, c + r * c_row, c_row, steps, accumulate);
}

template <class Step>
__attribute__((noinline)) void matmul(const float* a, int64_t a_row, const float* b, int64_t b_row, float* c, int64_t c_row,
                                      int64_t rows, int64_t columns, int64_t steps, bool accumulate) {
  constexpr int kVecs = kLanes == 16 ? 4 : 2;
  int64_t n = 0;
  for (; n + kVecs * kLanes <= columns; n += kVecs * kLanes)
    column_strip<Step, kVecs>(a, a_row, b + n, b_row, c + n, c_row, rows, steps, accumulate);
  for (; n + 2 * kLanes <= columns; n += 2 * kLanes)
    column_strip<Step, 2>(a, a_row, b + n, b_row, c + n, c_row, rows, steps, accumulate);
  for (; n < columns; n += kLanes)
    column_strip<Step, 1>(a, a_row, b + n, b_row, c + n, c_row, rows, steps, accumulate);
}

// Copies one row of `count` elements into steps, float32 per step or bfloat16 pairs, zero-filled up
// to `width` steps.
template <class Step, class T>
inline void pack_row(const T* source, int64_t count, float* target, int64_t width) {
  if constexpr (Step::kDepth == 2) {
    std::memcpy(target, source, count * sizeof(T));
    std::memset(reinterpret_cast<T*>(target) + count, 0, (2 * width - count) * sizeof(T));
  } else {
    for (int64_t i = 0; i < count; ++i) target[i] = widen(source[i]);
    for (int64_t i = count; i < width; ++i) target[i] = 0.f;
  }
}

// Transposes kLanes vectors in place: lane c of vector r becomes lane r of vector c.
inline void transpose_square(Vec* v) {
  Vec t[kLanes], u[kLanes];
#if defined(__AVX512F__)
  for (int i = 0; i < kLanes; i += 2) {
    t[i] = (Vec)_mm512_unpacklo_ps((__m512)v[i], (__m512)v[i + 1]);
    t[i + 1] = (Vec)_mm512_unpackhi_ps((__m512)v[i], (__m512)v[i + 1]);
  }
  for (int i = 0; i < kLanes; i += 4)
    for (int c = 0; c < 2; ++c) {
      u[i + 2 * c] = (Vec)_mm512_unpacklo_pd((__m512d)t[i + c], (__m512d)t[i + c + 2]);
      u[i + 2 * c + 1] = (Vec)_mm512_unpackhi_pd((__m512d)t[i + c], (__m512d)t[i + c + 2]);
    }
  for (int c = 0; c < 4; ++c) {
    const __m512 even_low = _mm512_shuffle_f32x4((__m512)u[c], (__m512)u[4 + c], 0x88);
    const __m512 even_high = _mm512_shuffle_f32x4((__m512)u[8 + c], (__m512)u[12 + c], 0x88);
    const __m512 odd_low = _mm512_shuffle_f32x4((__m512)u[c], (__m512)u[4 + c], 0xdd);
    const __m512 odd_high = _mm512_shuffle_f32x4((__m512)u[8 + c], (__m512)u[12 + c], 0xdd);
    v[c] = (Vec)_mm512_shuffle_f32x4(even_low, even_high, 0x88);
    v[4 + c] = (Vec)_mm512_shuffle_f32x4(odd_low, odd_high, 0x88);
    v[8 + c] = (Vec)_mm512_shuffle_f32x4(even_low, even_high, 0xdd);
    v[12 + c] = (Vec)_mm512_shuffle_f32x4(odd_low, odd_high, 0xdd);
  }
#else
  for (int i = 0; i < kLanes; i += 2) {
    t[i] = (Vec)_mm256_unpacklo_ps((__m256)v[i], (__m256)v[i + 1]);
    t[i + 1] = (Vec)_mm256_unpackhi_ps((__m256)v[i], (__m256)v[i + 1]);
  }
  for (int i = 0; i < kLanes; i += 4)
    for (int c = 0; c < 2; ++c) {
      u[i + 2 * c] = (Vec)_mm256_unpacklo_pd((__m256d)t[i + c], (__m256d)t[i + c + 2]);
      u[i + 2 * c + 1] = (Vec)_mm256_unpackhi_pd((__m256d)t[i + c], (__m256d)t[i + c + 2]);
    }
  for (int c = 0; c < 4; ++c) {
    v[c] = (Vec)_mm256_permute2f128_ps((__m256)u[c], (__m256)u[4 + c], 0x20);
    v[4 + c] = (Vec)_mm256_permute2f128_ps((__m256)u[c], (__m256)u[4 + c], 0x31);
  }
#endif
}

// Packs `rows` rows as the right-hand side of a product, out[step][row]. `row(r)` points at row r.
// `columns` is `rows` rounded up to kLanes, and so is the number of steps written; what is added is
// zero. `spare` has room for kLanes rows: those that do not fill whole vectors.
template <class Step, class T, class Row>
inline void pack_transposed(const Row& row, int64_t rows, int64_t count, float* spare, float* out, int64_t columns) {
  const int64_t width = round_up(steps_of<Step>(count), kLanes);
  const bool fills = std::is_same_v<T, typename Step::Element> && count == width * Step::kDepth;
  for (int64_t r = 0; r < columns; r += kLanes) {
    const float* lines[kLanes];
    for (int64_t i = 0; i < kLanes; ++i) {
      float* const line = spare + i * width;
      lines[i] = fills && r + i < rows ? reinterpret_cast<const float*>(row(r + i)) : line;
      if (r + i >= rows)
        std::memset(line, 0, width * sizeof(float));
      else if (!fills)
        pack_row<Step, T>(row(r + i), count, line, width);
    }
    for (int64_t s = 0; s < width; s += kLanes) {
      Vec block[kLanes];
      for (int i = 0; i < kLanes; ++i) block[i] = load(lines[i] + s);
      transpose_square(block);
      for (int i = 0; i < kLanes; ++i) store(out + (s + i) * columns + r, block[i]);
    }
  }
}

// Numbers of two rows side by side, kLanes of each; null: zeros.
inline void store_pairs(const BFloat16* first, const BFloat16* second, uint16_t* out) {
#if defined(__AVX512F__)
  const auto widened = [](const BFloat16* p) { return _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))); };
  const __m512i high = second ? _mm512_slli_epi32(widened(second), 16) : _mm512_setzero_si512();
  _mm512_storeu_si512(out, _mm512_or_si512(widened(first), high));
#else
  for (int i = 0; i < kLanes; ++i) {
    out[2 * i] = first[i].bits;
    out[2 * i + 1] = second ? second[i].bits : 0;
  }
#endif
}

// Packs values as the right-hand side of P V: [keys][dim] float32, or [keys / 2][dim] pairs of two
// neighbouring keys.
template <class Step, class T, class Row>
inline void pack_values(const Row& row, int64_t keys, int64_t dim, float* out, int64_t columns) {
  if constexpr (Step::kDepth == 2) {
    for (int64_t k = 0; k < keys; k += 2) {
      uint16_t* const target = reinterpret_cast<uint16_t*>(out + (k / 2) * columns);
      const T* const first = row(k);
      const T* const second = k + 1 < keys ? row(k + 1) : nullptr;
      int64_t d = 0;
      for (; d + kLanes <= dim; d += kLanes) store_pairs(first + d, second ? second + d : nullptr, target + 2 * d);
      for (; d < dim; ++d) {
        target[2 * d] = first[d].bits;
        target[2 * d + 1] = second ? second[d].bits : 0;
      }
      for (int64_t d = 2 * dim; d < 2 * columns; ++d) target[d] = 0;
    }
  } else {
    for (int64_t k = 0; k < keys; ++k) pack_row<Step, T>(row(k), dim, out + k * columns, columns);
  }
}

}  // namespace infinity
