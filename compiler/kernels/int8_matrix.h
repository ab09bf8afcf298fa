// 8-bit rows times panels of 8-bit columns, by tiles of the matrix unit.
//
// Tiles hold 64 numbers of 16 rows, or of 16 columns. The unit works beside the vector units, so the
// sums of one block of tiles are finished while those of the next are computed.
#pragma once

#if defined(__AMX_INT8__)

#include "amx.h"
#include "int8_columns.h"

#include <algorithm>

namespace infinity {

constexpr int64_t kMatrixStepBytes = kPanel * kMatrixRowBytes;  // of a panel: what one product of tiles needs
constexpr int64_t kMatrixSums = 4 * kMatrixRows * kMatrixRows;  // of four tiles, in any shape
constexpr int64_t kMatrixBufferBytes = 2 * kMatrixSums * sizeof(int32_t) + kMatrixStepBytes;  // see MatrixPanels

// Rows times the panels [first_panel, end_panel).
struct MatrixWork {
  const uint8_t* rows;  // kMatrixRows at a time may be read
  int64_t row_stride;   // depth, rounded up to a tile's
  int64_t depth;
  const float* row_scales;
  int64_t num_rows;
  const int8_t* weights;
  Columns columns;
  BFloat16* out;  // of the first row and column
  int64_t num_columns;
  int64_t first_panel, end_panel;
  bool is_streamed;  // weights are used once: they are fetched ahead
  uint8_t* buffer;   // kMatrixBufferBytes, aligned to a cache line
};

// Sums of up to 32 x 32 or 16 x 64 numbers that are not finished yet.
template <int kVecs>
struct PendingSums {
  const int32_t* sums = nullptr;
  const float* row_scales = nullptr;
  Columns columns = {};
  BFloat16* out = nullptr;
  int64_t out_stride = 0, num_columns = 0, row = 0, num_rows = 0;

  // Finishes up to `count` rows.
  template <Activation kActivation>
  void finish(int64_t count) {
    const int64_t end = std::min(num_rows, row + count);
    if (row == end) return;
    for (int v = 0; v < kVecs; v += 2) {
      const __mmask16 low = mask_of(std::max<int64_t>(num_columns - v * kLanes, 0));
      const __mmask16 high = mask_of(std::max<int64_t>(num_columns - (v + 1) * kLanes, 0));
      const ColumnVecs low_columns(columns, v * kLanes, low), high_columns(columns, (v + 1) * kLanes, high);
      const __mmask32 mask = low | (static_cast<__mmask32>(high) << kLanes);
      for (int64_t r = row; r < end; ++r) {
        const __m512 scale = _mm512_set1_ps(row_scales[r]);
        const int32_t* const sum = sums + r * kVecs * kLanes + v * kLanes;
        const __m512 first = low_columns.template finish<kActivation>(_mm512_load_si512(sum), scale);
        const __m512 second = high_columns.template finish<kActivation>(_mm512_load_si512(sum + kLanes), scale);
        _mm512_mask_storeu_epi16(out + r * out_stride + v * kLanes, mask, (__m512i)_mm512_cvtne2ps_pbh(second, first));
      }
    }
    row = end;
  }
};

// What one block of tiles multiplies. The steps of a panel are all but the last in the weights; an
// incomplete last one is in `tail`.
struct MatrixBlock {
  const uint8_t* rows;
  int64_t row_stride;
  const int8_t* panel;
  const int8_t* tail;
  int64_t whole_steps, steps;
  const int32_t* start;  // what sums begin with, by column

  const int8_t* step(int64_t s) const { return s < whole_steps ? panel + s * kMatrixStepBytes : tail; }
};

// 16 rows of a panel, kColumnTiles tiles wide, or 32 rows of half of one. Calls `meanwhile` after each step.
template <int kRowTiles, bool kIsStreamed, class Meanwhile>
inline void multiply_block(const MatrixBlock& b, int32_t* sums, const Meanwhile& meanwhile) {
  constexpr int64_t kStride = kPanel * kStepDepth, kHalf = kMatrixRowBytes;
  const uint8_t* rows = b.rows;
  const int64_t stride = b.row_stride;
  finish_writes(b.start);
  _tile_loadd(0, b.start, 0);
  _tile_loadd(1, b.start + 16, 0);
  if (kRowTiles == 2) {
    _tile_loadd(2, b.start, 0);
    _tile_loadd(3, b.start + 16, 0);
  } else {
    _tile_loadd(2, b.start + 32, 0);
    _tile_loadd(3, b.start + 48, 0);
  }
  for (int64_t s = 0; s < b.steps; ++s, rows += kMatrixRowBytes) {
    const int8_t* const columns = b.step(s);
    if (kIsStreamed)
      for (int64_t line = 0; line < kMatrixStepBytes; line += 64) _mm_prefetch(columns + 2 * kMatrixStepBytes + line, _MM_HINT_T0);
    if (kRowTiles == 2) {
      _tile_loadd(6, columns, kStride);
      _tile_loadd(4, rows, stride);
      _tile_dpbusd(0, 4, 6);
      _tile_loadd(7, columns + kHalf, kStride);
      _tile_dpbusd(1, 4, 7);
      _tile_loadd(5, rows + kMatrixRows * stride, stride);
      _tile_dpbusd(2, 5, 6);
      _tile_dpbusd(3, 5, 7);
    } else {
      _tile_loadd(4, rows, stride);
      _tile_loadd(5, columns, kStride);
      _tile_dpbusd(0, 4, 5);
      _tile_loadd(6, columns + kHalf, kStride);
      _tile_dpbusd(1, 4, 6);
      _tile_loadd(7, columns + 2 * kHalf, kStride);
      _tile_dpbusd(2, 4, 7);
      _tile_loadd(5, columns + 3 * kHalf, kStride);
      _tile_dpbusd(3, 4, 5);
    }
    meanwhile();
  }
  if (kRowTiles == 2) {
    _tile_stored(0, sums, 128);
    _tile_stored(1, sums + 16, 128);
    _tile_stored(2, sums + 16 * 32, 128);
    _tile_stored(3, sums + 16 * 32 + 16, 128);
  } else {
    _tile_stored(0, sums, 256);
    _tile_stored(1, sums + 16, 256);
    _tile_stored(2, sums + 32, 256);
    _tile_stored(3, sums + 48, 256);
  }
}

class MatrixPanels {
 public:
  explicit MatrixPanels(const MatrixWork& work)
      : work_(work),
        wide_sums_(reinterpret_cast<int32_t*>(work.buffer)),
        narrow_sums_(wide_sums_ + kMatrixSums),
        tail_(reinterpret_cast<int8_t*>(narrow_sums_ + kMatrixSums)) {}

  template <Activation kActivation>
  void run() {
    for (int64_t panel = work_.first_panel; panel < work_.end_panel; ++panel) {
      open(panel);
      int64_t row = 0;
      const int64_t columns = work_.num_columns - panel * kPanel;
      for (; work_.num_rows - row > kMatrixRows; row += 2 * kMatrixRows)
        for (int64_t column = 0; column < std::min(columns, kPanel); column += kPanel / 2)
          multiply<2, kActivation>(wide_, wide_sums_, row, panel * kPanel, column);
      if (row < work_.num_rows) multiply<1, kActivation>(narrow_, narrow_sums_, row, panel * kPanel, 0);
    }
    wide_.finish<kActivation>(2 * kMatrixRows);
    narrow_.finish<kActivation>(kMatrixRows);
  }

 private:
  const MatrixWork work_;
  int32_t *wide_sums_, *narrow_sums_;
  int8_t* tail_;
  alignas(64) int32_t start_[kPanel];
  const int8_t* panel_ = nullptr;
  PendingSums<2> wide_;
  PendingSums<4> narrow_;

  void open(int64_t panel) {
    panel_ = work_.weights + panel * kPanel * work_.depth;
    const int64_t columns = work_.num_columns - panel * kPanel;
    for (int v = 0; v < kPanel / kLanes; ++v) {
      const __mmask16 mask = mask_of(std::max<int64_t>(columns - v * kLanes, 0));
      const __m512i sums = _mm512_maskz_loadu_epi32(mask, work_.columns.sums + panel * kPanel + v * kLanes);
      _mm512_store_si512(start_ + v * kLanes, _mm512_sub_epi32(_mm512_setzero_si512(), sums));
    }
    const int64_t left = work_.depth % kMatrixRowBytes;
    if (left == 0) return;
    std::memcpy(tail_, panel_ + (work_.depth - left) * kPanel, left * kPanel);
    std::memset(tail_ + left * kPanel, 0, kMatrixStepBytes - left * kPanel);
  }

  // The sums of the block before are all finished when those of this one take their place.
  template <int kRowTiles, Activation kActivation, int kVecs>
  void multiply(PendingSums<kVecs>& pending, int32_t* sums, int64_t row, int64_t first_column, int64_t column) {
    constexpr int64_t kRows = kRowTiles * kMatrixRows;
    const int64_t steps = work_.row_stride / kMatrixRowBytes, start = first_column + column;
    const MatrixBlock block{work_.rows + row * work_.row_stride, work_.row_stride, panel_ + column * kStepDepth,
                            tail_ + column * kStepDepth, work_.depth / kMatrixRowBytes, steps, start_ + column};
    const auto meanwhile = [&] { pending.template finish<kActivation>((kRows + steps - 1) / steps); };
    if (work_.is_streamed && row == 0 && column == 0)
      multiply_block<kRowTiles, true>(block, sums, meanwhile);
    else
      multiply_block<kRowTiles, false>(block, sums, meanwhile);
    pending = {sums, work_.row_scales + row, work_.columns.from(start), work_.out + row * work_.num_columns + start,
               work_.num_columns, work_.num_columns - start, 0, std::min(kRows, work_.num_rows - row)};
  }
};

}  // namespace infinity

#endif
