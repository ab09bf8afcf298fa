// Working memory of one thread, kept between calls.
#pragma once

#include "kernel_common.h"

#include <algorithm>
#include <cstdlib>
#include <memory>

namespace infinity {

class Scratch {
 public:
  // Room for `slots` arrays of together `floats` floats; false when there is no memory for them.
  // Whatever was taken before is gone.
  bool reserve(int64_t floats, int64_t slots) {
    const int64_t wanted = round_up(floats, kLine) + slots * kLine;
    next_ = 0;
    if (wanted <= size_) return true;
    storage_.reset();
    storage_.reset(static_cast<float*>(std::aligned_alloc(kLine * sizeof(float), wanted * sizeof(float))));
    size_ = storage_ ? wanted : 0;
    return storage_ != nullptr;
  }

  // The next array, aligned to a cache line and not initialised.
  float* take(int64_t floats) {
    float* const taken = storage_.get() + next_;
    next_ += round_up(floats, kLine);
    return taken;
  }

 private:
  static constexpr int64_t kLine = 64 / sizeof(float);
  struct Free {
    void operator()(float* memory) const { std::free(memory); }
  };
  std::unique_ptr<float, Free> storage_;
  int64_t size_ = 0, next_ = 0;
};

}  // namespace infinity
