// A few bfloat16 rows times one or two panels of columns, out of vector registers.
//
// A panel holds kPanel columns in blocks of kDepthBlock rows. A block holds the first 16 columns, then
// the others, each pair of rows by pair of rows, column by column: what a tile of the matrix unit and
// the instruction for pairs both read. Rows and columns that are missing are zero.
#pragma once

#include "bf16_epilogue.h"

namespace infinity {

constexpr int64_t kTileRows = 6;  // with four vectors of columns: 24 of the 32 registers hold sums

struct SourceRows {
  const BFloat16* data;
  int64_t stride;

  SourceRows from(int64_t row) const { return {data + row * stride, stride}; }
};

// Panels lie one behind the other, as their epilogues do.
struct VectorTile {
  SourceRows rows;
  int64_t depth;  // even
  const BFloat16* panels;
  int64_t panel_size;
  Epilogue epilogues[2];
};

// sum + a pair times a pair in each lane. GCC copies the sums of the intrinsic from register to
// register, which costs more than the products.
inline __m512 multiply_add_pairs(__m512 sum, __m512i rows, __m512i columns) {
  asm("vdpbf16ps %2, %1, %0" : "+v"(sum) : "v"(rows), "v"(columns));
  return sum;
}

template <Activation kActivation, int kRows, int kPanels>
inline void multiply_vectors(const VectorTile& t) {
  constexpr int kVecs = 2 * kPanels;
  __m512 sums[kRows][kVecs];
#pragma GCC unroll 6
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < kVecs; ++v) sums[r][v] = _mm512_setzero_ps();
  for (int64_t block = 0; block < t.depth; block += kDepthBlock) {
    const BFloat16* const columns = t.panels + block * kPanel;
    const int64_t pairs = std::min(kDepthBlock, t.depth - block) / 2;
    for (int64_t pair = 0; pair < pairs; ++pair) {
      __m512i loaded[kVecs];
#pragma GCC unroll 4
      for (int v = 0; v < kVecs; ++v) {
        const BFloat16* const vector = columns + (v / 2) * t.panel_size + (v % 2) * kHalf + pair * 2 * kLanes;
        loaded[v] = _mm512_loadu_si512(vector);
        _mm_prefetch(reinterpret_cast<const char*>(vector + kPanelBlock), _MM_HINT_T0);
      }
#pragma GCC unroll 6
      for (int r = 0; r < kRows; ++r) {
        int32_t two;
        std::memcpy(&two, t.rows.data + r * t.rows.stride + block + 2 * pair, sizeof(two));
        const __m512i row = _mm512_set1_epi32(two);
#pragma GCC unroll 4
        for (int v = 0; v < kVecs; ++v) sums[r][v] = multiply_add_pairs(sums[r][v], row, loaded[v]);
      }
    }
  }
#pragma GCC unroll 2
  for (int p = 0; p < kPanels; ++p)
#pragma GCC unroll 6
    for (int r = 0; r < kRows; ++r)
      t.epilogues[p].template finish<kActivation>(r, sums[r][2 * p], sums[r][2 * p + 1]);
}

template <Activation kActivation, int kPanels>
inline void run_vectors(const VectorTile& t, int64_t rows) {
  switch (rows) {
    case 1: return multiply_vectors<kActivation, 1, kPanels>(t);
    case 2: return multiply_vectors<kActivation, 2, kPanels>(t);
    case 3: return multiply_vectors<kActivation, 3, kPanels>(t);
    case 4: return multiply_vectors<kActivation, 4, kPanels>(t);
    case 5: return multiply_vectors<kActivation, 5, kPanels>(t);
    default: return multiply_vectors<kActivation, 6, kPanels>(t);
  }
}

}  // namespace infinity
