// What changes attention scores before the softmax without a matrix of its own.
#pragma once

#include "kernel_common.h"
#include "softmax.h"

#include <algorithm>

namespace infinity {

// Soft-cap, then a bias by distance. With neither, the softmax scales the scores itself.
struct Adjustment {
  const float* bias;  // [H, 2 reach + 1], or null
  int64_t bias_row, reach;
  float softcap;  // 0: none
  float scale;

  bool is_none() const { return bias == nullptr && softcap == 0.f; }
  float softmax_scale() const { return is_none() ? scale : 1.f; }

  // Biases of the distances from `first` on; distances beyond the reach take the ends.
  void expand(int64_t head, int64_t first, int64_t count, float* out) const {
    if (bias == nullptr) return;
    const float* const middle = bias + head * bias_row + reach;
    const int64_t left = std::clamp<int64_t>(-reach - first, 0, count);
    const int64_t right = std::clamp<int64_t>(reach + 1 - first, left, count);
    std::fill(out, out + left, middle[-reach]);
    if (left < right) std::copy(middle + first + left, middle + first + right, out + left);
    std::fill(out + right, out + count, middle[reach]);
  }

  void apply(float* scores, const float* biases, int64_t columns) const {
    if (softcap == 0.f)
      apply_to<false, true>(scores, biases, columns);
    else if (bias == nullptr)
      apply_to<true, false>(scores, biases, columns);
    else
      apply_to<true, true>(scores, biases, columns);
  }

 private:
  template <bool kCaps, bool kBiased>
  void apply_to(float* scores, const float* biases, int64_t columns) const {
    const float factor = kCaps ? scale / softcap : scale;
    for (int64_t c = 0; c < columns; c += kLanes) {
      Vec score = load(scores + c) * factor;
      if constexpr (kCaps) score = tanh_vec(score) * softcap;
      if constexpr (kBiased) score += load(biases + c);
      store(scores + c, score);
    }
  }
};

}  // namespace infinity
