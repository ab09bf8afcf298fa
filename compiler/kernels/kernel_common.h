// What the kernels share: vectors of the build's width, bfloat16, and the naming of exported
// symbols.
//
// Every exported symbol ends in the digest of these sources and their flags: several artifacts
// share one process.
#pragma once

#include <torch/csrc/inductor/aoti_torch/c/shim.h>

#include <immintrin.h>

#include <cstdint>
#include <cstring>

#ifndef INFINITY_DIGEST
#error "compile with -DINFINITY_DIGEST=<digest of the sources and their flags>"
#endif
#define INFINITY_JOIN2(a, b) a##_##b
#define INFINITY_JOIN(a, b) INFINITY_JOIN2(a, b)
#define INFINITY_EXPORT extern "C" __attribute__((visibility("default")))

namespace infinity {

#if defined(__AVX512F__)
constexpr int kLanes = 16;
#else
constexpr int kLanes = 8;
#endif
typedef float Vec __attribute__((vector_size(kLanes * sizeof(float))));
typedef float VecU __attribute__((vector_size(kLanes * sizeof(float)), aligned(4), may_alias));
typedef int32_t VecI __attribute__((vector_size(kLanes * sizeof(int32_t))));

struct BFloat16 {
  uint16_t bits;
};

inline float widen(BFloat16 value) {
  const uint32_t bits = static_cast<uint32_t>(value.bits) << 16;
  float result;
  std::memcpy(&result, &bits, sizeof(result));
  return result;
}
inline float widen(float value) { return value; }

inline void narrow(float value, float* out) { *out = value; }
inline void narrow(float value, BFloat16* out) {  // round to nearest even
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  bits += 0x7fffu + ((bits >> 16) & 1u);
  out->bits = static_cast<uint16_t>(bits >> 16);
}

inline Vec load(const float* p) { return *reinterpret_cast<const VecU*>(p); }
inline void store(float* p, Vec v) { *reinterpret_cast<VecU*>(p) = v; }
inline void store_narrow(Vec v, float* p) { store(p, v); }
inline void store_narrow(Vec v, BFloat16* p) {
#if defined(__AVX512BF16__)
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), (__m256i)_mm512_cvtneps_pbh((__m512)v));
#else
  for (int i = 0; i < kLanes; ++i) narrow(v[i], p + i);
#endif
}
inline Vec splat(float x) { return Vec{} + x; }
inline Vec vmax(Vec a, Vec b) { return a > b ? a : b; }

#if defined(__AVX512F__)
// The first lanes of 16 or of 32, `count` of them: none below 0, all from there on.
inline __mmask16 first_lanes(int64_t count) {
  return count >= 16 ? 0xffff : static_cast<__mmask16>((1u << (count < 0 ? 0 : count)) - 1u);
}
inline __mmask32 first_lanes32(int64_t count) {
  return count >= 32 ? 0xffffffffu : static_cast<__mmask32>((1u << (count < 0 ? 0 : count)) - 1u);
}
#endif

inline int64_t round_up(int64_t value, int64_t multiple) { return (value + multiple - 1) / multiple * multiple; }

}  // namespace infinity
