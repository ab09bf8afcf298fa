// Products of 8-bit numbers and their sums, on registers alone: no 8-bit product of this machine is faster.

#include <immintrin.h>

#include <cstdint>

namespace {

constexpr int kChains = 24;  // as many sums as the operator keeps; the instruction's latency is hidden by far fewer
constexpr int64_t kOpsPerInstruction = 64 * 2;

inline __m512i multiply_add(__m512i sum, __m512i rows, __m512i columns) {
  asm volatile("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(rows), "v"(columns));
  return sum;
}

}  // namespace

// Runs on `num_threads` threads; returns how many operations they did together.
extern "C" int64_t vnni_multiply(int64_t num_rounds, int num_threads) {
#pragma omp parallel num_threads(num_threads)
  {
    const __m512i rows = _mm512_set1_epi8(3), columns = _mm512_set1_epi8(-2);
    __m512i sums[kChains];
#pragma GCC unroll 24
    for (int i = 0; i < kChains; ++i) sums[i] = _mm512_setzero_si512();
    for (int64_t round = 0; round < num_rounds; ++round) {
#pragma GCC unroll 24
      for (int i = 0; i < kChains; ++i) sums[i] = multiply_add(sums[i], rows, columns);
    }
  }
  return num_rounds * kChains * kOpsPerInstruction * num_threads;
}
