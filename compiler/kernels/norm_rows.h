// Rows of numbers made one: summed, centred and scaled in float32, rounded once.
//
// Rows lie in working memory of their thread meanwhile, which the first-level cache holds. Several take
// turns, so that while one waits for its sum another is added up. Every row is computed alike,
// whatever surrounds it.
#pragma once

#include "kernel_common.h"
#include "scratch.h"
#include "softmax.h"
#include "tensor_view.h"

#include <algorithm>
#include <cmath>

namespace infinity {

constexpr int64_t kNormBlock = 4;                  // rows that take turns
constexpr int64_t kNormSums = 4;                   // side by side: one addition waits for the one before
constexpr int64_t kNormTeamElements = 16384;  // fewer are no work for more than one thread

template <class T>
inline Vec load_widened(const T* p) {
  if constexpr (std::is_same_v<T, float>) {
    return load(p);
  } else {
#if defined(__AVX512BF16__)
    return (Vec)_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))), 16);
#else
    Vec v;
    for (int i = 0; i < kLanes; ++i) v[i] = widen(p[i]);
    return v;
#endif
  }
}

// Rows that are added up before they are normalised; `count` of them.
template <class T>
struct NormTerms {
  static constexpr int kMost = 3;
  const T* rows[kMost];
};

// The numbers that each column is multiplied with, and what is added then, as float32.
struct NormColumns {
  const float* weight;
  const float* bias;  // or null
};

// Fills `out`, whose room is a multiple of the vector's, with the sum of terms. Returns the sum of all.
template <int kTerms, class T>
inline float add_terms(const NormTerms<T>& terms, int64_t width, float* out) {
  Vec sums[kNormSums] = {};
  int64_t k = 0;
  const auto take = [&](int64_t at, Vec& sum) {
    Vec value = load_widened(terms.rows[0] + at);
    if constexpr (kTerms > 1) value += load_widened(terms.rows[1] + at);
    if constexpr (kTerms > 2) value += load_widened(terms.rows[2] + at);
    store(out + at, value);
    sum += value;
  };
  for (; k + kNormSums * kLanes <= width; k += kNormSums * kLanes)
#pragma GCC unroll 4
    for (int64_t s = 0; s < kNormSums; ++s) take(k + s * kLanes, sums[s]);
  for (; k + kLanes <= width; k += kLanes) take(k, sums[0]);
  float rest = 0.f;
  for (; k < width; ++k) {
    float value = widen(terms.rows[0][k]);
    for (int t = 1; t < kTerms; ++t) value += widen(terms.rows[t][k]);
    out[k] = value;
    rest += value;
  }
  return reduce_add((sums[0] + sums[1]) + (sums[2] + sums[3])) + rest;
}

// The sum of squared distances from `mean`. What fills the row up to whole vectors is set to `mean`.
inline float squared_distances(float* row, int64_t width, float mean) {
  const int64_t end = round_up(width, kLanes);
  std::fill(row + width, row + end, mean);
  Vec sums[kNormSums] = {};
  int64_t k = 0;
  const auto take = [&](int64_t at, Vec& sum) {
    const Vec distance = load(row + at) - mean;
    sum = distance * distance + sum;
  };
  for (; k + kNormSums * kLanes <= end; k += kNormSums * kLanes)
#pragma GCC unroll 4
    for (int64_t s = 0; s < kNormSums; ++s) take(k + s * kLanes, sums[s]);
  for (; k < end; k += kLanes) take(k, sums[0]);
  return reduce_add((sums[0] + sums[1]) + (sums[2] + sums[3]));
}

// (row - mean) * scale, times the weights, plus the bias.
template <bool kHasBias, class T>
inline void scale_row(float* row, int64_t width, float mean, float scale, const NormColumns& columns, T* out) {
  const auto finished = [&](int64_t k) {
    const Vec value = (load(row + k) - mean) * scale;
    return kHasBias ? value * load(columns.weight + k) + load(columns.bias + k) : value * load(columns.weight + k);
  };
  int64_t k = 0;
  for (; k + kLanes <= width; k += kLanes) store_narrow(finished(k), out + k);
  if (k == width) return;
  store(row + k, finished(k));
  for (; k < width; ++k) narrow(row[k], out + k);
}

// Rows `first` to `end`, at most kNormBlock; `rows` has room for as many, `distance` apart.
template <int kTerms, bool kHasBias, class T, class TermsOf>
inline void normalise_block(int64_t first, int64_t end, const TermsOf& terms_of, int64_t width, float epsilon,
                            const NormColumns& columns, float* rows, int64_t distance, T* out) {
  float means[kNormBlock], scales[kNormBlock];
  const int64_t count = end - first;
  for (int64_t r = 0; r < count; ++r)
    means[r] = add_terms<kTerms>(terms_of(first + r), width, rows + r * distance) / static_cast<float>(width);
  for (int64_t r = 0; r < count; ++r) {
    const float variance = squared_distances(rows + r * distance, width, means[r]) / static_cast<float>(width);
    scales[r] = 1.f / std::sqrt(variance + epsilon);
  }
  for (int64_t r = 0; r < count; ++r)
    scale_row<kHasBias>(rows + r * distance, width, means[r], scales[r], columns, out + (first + r) * width);
}

// Working memory of a thread: a block of rows, and the columns' numbers widened once per call.
struct NormBuffers {
  float* rows = nullptr;
  int64_t distance = 0;
  NormColumns columns = {};

  bool reserve(Scratch& scratch, const TensorView& weight, const TensorView& bias) {
    const int64_t width = weight.sizes[0], padded = round_up(width, kLanes);
    if (!scratch.reserve((kNormBlock + 2) * padded, 3)) return false;
    rows = scratch.take(kNormBlock * padded);
    distance = padded;
    columns = {widened(weight, scratch.take(padded), padded), nullptr};
    if (bias.data) columns.bias = widened(bias, scratch.take(padded), padded);
    return true;
  }

 private:
  static const float* widened(const TensorView& numbers, float* out, int64_t padded) {
    const int64_t width = numbers.sizes[0];
    if (is_float32(numbers))
      std::copy_n(numbers.as<const float>(), width, out);
    else
      for (int64_t k = 0; k < width; ++k) out[k] = widen(numbers.as<const BFloat16>()[k]);
    std::fill(out + width, out + padded, 0.f);
    return out;
  }
};

// What every normalisation takes: (D,) weight and bias of float32 or bfloat16, the bias may be absent.
inline bool are_norm_columns(const TensorView& weight, const TensorView& bias, int64_t width) {
  return width > 0 && is_supported(weight) && weight.sizes[0] == width &&
         (bias.data == nullptr || (is_supported(bias) && bias.sizes[0] == width));
}

// Normalises rows 0 to `num_rows`; `terms_of(row)` says where the terms of a row lie.
template <int kTerms, class T, class TermsOf>
bool normalise_rows(int64_t num_rows, const TensorView& weight, const TensorView& bias, float epsilon, T* out,
                    const TermsOf& terms_of) {
  const int64_t width = weight.sizes[0];
  bool complete = true;
#pragma omp parallel reduction(&& : complete) if (num_rows * width > kNormTeamElements)
  {
    thread_local Scratch scratch;
    NormBuffers buffers;
    complete = buffers.reserve(scratch, weight, bias);
#pragma omp for schedule(static)
    for (int64_t first = 0; first < num_rows; first += kNormBlock) {
      if (!complete) continue;
      const int64_t end = std::min(num_rows, first + kNormBlock);
      const NormBuffers& b = buffers;
      if (bias.data)
        normalise_block<kTerms, true>(first, end, terms_of, width, epsilon, b.columns, b.rows, b.distance, out);
      else
        normalise_block<kTerms, false>(first, end, terms_of, width, epsilon, b.columns, b.rows, b.distance, out);
    }
  }
  return complete;
}

}  // namespace infinity
