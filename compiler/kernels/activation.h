// The functions that follow a linear layer, on vectors of float32 that will be rounded to bfloat16.
#pragma once

#include "gelu_table.h"
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

inline Vec sigmoid_for_bfloat16(Vec x) {
  const Vec e = exp_for_bfloat16(-vabs(x));
  return (x < 0.f ? e : splat(1.f)) / (1.f + e);
}

template <Activation kActivation>
inline Vec activate(Vec x) {
  switch (kActivation) {
    case Activation::kNone: return x;
    case Activation::kGelu: return gelu_for_bfloat16(x, kExactGelu);
    case Activation::kGeluTanh: return gelu_for_bfloat16(x, kTanhGelu);
    case Activation::kSilu: return x * sigmoid_for_bfloat16(x);
    case Activation::kRelu: return x < 0.f ? Vec{} : x;  // keeps NaN
  }
}

}  // namespace infinity
