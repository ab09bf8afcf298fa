// What one thread multiplies rows by layers with.
#pragma once

#include "bf16_matrix.h"
#include "scratch.h"

namespace infinity {

// Tiles of the matrix unit where the system lets this process use them, else vector registers.
class LayerWorker {
 public:
  static bool uses_tiles() {
#if defined(__AMX_BF16__)
    return may_use_tiles();
#else
    return false;
#endif
  }

  // Room for blocks of up to `rows` rows of `depth` numbers; false when there is no memory.
  bool reserve(Scratch& scratch, int64_t rows, int64_t depth) {
#if defined(__AMX_BF16__)
    const int64_t floats = round_up(rows, kMatrixBlock) * round_up(depth, kDepthBlock) / 2;
    if (!uses_tiles()) return true;
    if (!scratch.reserve(kSumsOfBlock + floats, 2)) return false;
    sums_ = scratch.take(kSumsOfBlock);
    tiles_ = reinterpret_cast<BFloat16*>(scratch.take(floats));
#endif
    return true;
  }

  // Rows [0, num_rows) times some panels. Results are tiles only where tiles are used.
  template <Activation kActivation, class Results>
  void multiply(const SourceRows& rows, int64_t num_rows, const Layer& layer, Panels panels, const Results& results) const {
#if defined(__AMX_BF16__)
    if (uses_tiles()) {
      pack_tiles(rows, num_rows, layer.depth, tiles_);
      return multiply_on_matrix<kActivation>(tiles_, num_rows, layer, panels, results, sums_);
    }
#endif
    if constexpr (Results::kLiesInRows) multiply_on_vectors<kActivation>(rows, num_rows, layer, panels, results);
  }

  // The same of rows that lie as TileResults leaves them.
  void multiply_tiles(const BFloat16* tiles, int64_t num_rows, const Layer& layer, Panels panels, const RowResults& results) const {
#if defined(__AMX_BF16__)
    multiply_on_matrix<Activation::kNone>(tiles, num_rows, layer, panels, results, sums_);
#endif
  }

 private:
  float* sums_ = nullptr;
  BFloat16* tiles_ = nullptr;
};

}  // namespace infinity
