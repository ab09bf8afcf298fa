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

// erf(x / sqrt(2)), absolute error below 7e-5, a thirtieth of what rounding the result to bfloat16
// adds: an odd polynomial of least largest error on [-4, 4] that is 1 at its end. No exponential and no
// division.
inline Vec erf_of_normal(Vec x) {
  const Vec c = (Vec)_mm512_min_ps(_mm512_max_ps((__m512)x, _mm512_set1_ps(-4.f)), _mm512_set1_ps(4.f));
  const Vec z = c * c;
  Vec p = z * -2.552710945e-09f + 2.086952456e-07f;
  p = p * z - 7.414818075e-06f;
  p = p * z + 1.523285545e-04f;
  p = p * z - 2.041767858e-03f;
  p = p * z + 1.916174994e-02f;
  p = p * z - 1.321267696e-01f;
  p = p * z + 7.976105228e-01f;
  return c * p;
}

inline Vec sigmoid_for_bfloat16(Vec x) {
  const Vec e = exp_for_bfloat16(-vabs(x));
  return (x < 0.f ? e : splat(1.f)) / (1.f + e);
}

template <Activation kActivation>
inline Vec activate(Vec x) {
  switch (kActivation) {
    case Activation::kNone: return x;
    case Activation::kGelu: {
      const Vec half = 0.5f * x;
      return half + half * erf_of_normal(x);
    }
    // (1 + tanh(u)) / 2 is sigmoid(2 u).
    case Activation::kGeluTanh: return x * sigmoid_for_bfloat16(x * (1.59576912160573071f + 0.07135481282614f * x * x));
    case Activation::kSilu: return x * sigmoid_for_bfloat16(x);
    case Activation::kRelu: return vmax(x, Vec{});
  }
}

}  // namespace infinity
