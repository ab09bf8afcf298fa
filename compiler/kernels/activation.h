// The functions that follow a linear layer, on vectors of float32 that will be rounded to bfloat16.
#pragma once

#include "kernel_common.h"
#include "softmax.h"

#include <type_traits>

namespace infinity {

// As infinity::int8_linear numbers them.
enum class Activation : int64_t { kNone = 0, kGelu = 1, kGeluTanh = 2, kSilu = 3, kRelu = 4 };

inline bool is_activation(int64_t value) { return value >= 0 && value <= static_cast<int64_t>(Activation::kRelu); }

// Calls `body` with the activation as a type.
template <class Body>
inline void with_activation(Activation activation, const Body& body) {
  switch (activation) {
    case Activation::kNone: return body(std::integral_constant<Activation, Activation::kNone>{});
    case Activation::kGelu: return body(std::integral_constant<Activation, Activation::kGelu>{});
    case Activation::kGeluTanh: return body(std::integral_constant<Activation, Activation::kGeluTanh>{});
    case Activation::kSilu: return body(std::integral_constant<Activation, Activation::kSilu>{});
    case Activation::kRelu: return body(std::integral_constant<Activation, Activation::kRelu>{});
  }
}

inline Vec vabs(Vec x) { return vmax(x, -x); }

// exp(x) for x <= 0, as exact as exp2_for_bfloat16.
inline Vec exp_for_bfloat16(Vec x) { return exp2_for_bfloat16(x * 1.44269504088896341f); }

// erf(x), absolute error below 2e-4, a tenth of what rounding the result to bfloat16 adds: Abramowitz
// and Stegun, Handbook of Mathematical Functions (1964), 7.1.26, with a reciprocal of 14 bits.
inline Vec erf_for_bfloat16(Vec x) {
  const Vec a = vabs(x);
  const Vec t = (Vec)_mm512_rcp14_ps((__m512)(1.f + 0.3275911f * a));
  const Vec p = t * (0.254829592f + t * (-0.284496736f + t * (1.421413741f + t * (-1.453152027f + t * 1.061405429f))));
  const Vec y = 1.f - p * exp_for_bfloat16(-a * a);
  return x < 0.f ? -y : y;
}

inline Vec sigmoid_for_bfloat16(Vec x) {
  const Vec e = exp_for_bfloat16(-vabs(x));
  return (x < 0.f ? e : splat(1.f)) / (1.f + e);
}

template <Activation kActivation>
inline Vec activate(Vec x) {
  switch (kActivation) {
    case Activation::kNone: return x;
    case Activation::kGelu: return 0.5f * x * (1.f + erf_for_bfloat16(x * 0.70710678118654752f));
    case Activation::kGeluTanh: return 0.5f * x * (1.f + tanh_vec(0.79788456080286536f * (x + 0.044715f * x * x * x)));
    case Activation::kSilu: return x * sigmoid_for_bfloat16(x);
    case Activation::kRelu: return vmax(x, Vec{});
  }
}

}  // namespace infinity
