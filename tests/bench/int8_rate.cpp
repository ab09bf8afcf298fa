// Products of 8-bit numbers and their sums, on registers or tiles alone: no 8-bit product of this machine is faster.

#include <immintrin.h>

#include <cstdint>

#include "amx.h"

namespace {

constexpr int kChains = 24;  // as many sums as the operator keeps; the instruction's latency is hidden by far fewer
constexpr int64_t kOpsPerInstruction = 64 * 2;
constexpr int kTileChains = 4;
constexpr int64_t kOpsPerTile = 16 * 16 * 64 * 2;

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

#if defined(__AMX_INT8__)

// The same with the tiles of the matrix unit; 0 where the system refuses them.
extern "C" int64_t tile_multiply(int64_t num_rounds, int num_threads) {
  if (!infinity::may_use_tiles()) return 0;
#pragma omp parallel num_threads(num_threads)
  {
    const infinity::Tiles tiles(infinity::TileConfig::full());
    _tile_zero(4);
    _tile_zero(5);
    _tile_zero(6);
    _tile_zero(7);
    for (int64_t round = 0; round < num_rounds; ++round) {
      _tile_dpbusd(0, 4, 6);
      _tile_dpbusd(1, 4, 7);
      _tile_dpbusd(2, 5, 6);
      _tile_dpbusd(3, 5, 7);
    }
  }
  return num_rounds * kTileChains * kOpsPerTile * num_threads;
}

#endif
