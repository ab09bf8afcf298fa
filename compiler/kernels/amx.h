// Tiles of the matrix unit (AMX): the permission for them, and their configuration.
//
// A tile holds up to 16 rows of 64 bytes. Intel 64 and IA-32 Architectures Software Developer's
// Manual, volume 1, chapter 18; the permission: Linux, Documentation/arch/x86/xstate.rst.
#pragma once

#if defined(__AMX_TILE__)

#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>

namespace infinity {

constexpr int kMatrixRows = 16;        // of a tile
constexpr int kMatrixRowBytes = 64;
constexpr int kMatrixTiles = 8;

// Asks Linux once per process to let its threads use tiles; false where it refuses.
inline bool may_use_tiles() {
  constexpr long kRequestPermission = 0x1023, kTileData = 18;
  static const bool allowed = syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
  return allowed;
}

// What `ldtilecfg` reads. A tile of no rows is not used.
struct alignas(64) TileConfig {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};

  void set(int tile, int num_rows, int num_bytes) {
    rows[tile] = static_cast<uint8_t>(num_rows);
    row_bytes[tile] = static_cast<uint16_t>(num_bytes);
  }

  // All tiles of full size.
  static TileConfig full() {
    TileConfig config;
    for (int i = 0; i < kMatrixTiles; ++i) config.set(i, kMatrixRows, kMatrixRowBytes);
    return config;
  }
};

// GCC's intrinsics do not say what memory they read: what was written before must be there.
inline void finish_writes(const void* memory) { asm volatile("" : : "r"(memory) : "memory"); }

// Configures the tiles of this thread while it lives. Other libraries configure them for themselves
// before they use them, so nothing has to be kept.
class Tiles {
 public:
  explicit Tiles(const TileConfig& config) {
    finish_writes(&config);
    _tile_loadconfig(&config);
  }
  ~Tiles() { _tile_release(); }
  Tiles(const Tiles&) = delete;
  Tiles& operator=(const Tiles&) = delete;
};

}  // namespace infinity

#endif
