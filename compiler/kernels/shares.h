// How the work of an operator is divided: into items, and among the threads of a team.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <vector>

namespace infinity {

// Items in the order of their rows. Each thread begins with its own share, about the same rows in every
// operator of a model: what the last one wrote lies in the caches of the CPU that goes on with it. Who
// is done takes what others have not begun.
class Shares {
 public:
  // Thread t's share ends before item `end_of(t)`, the last one's before `items`.
  template <class EndOf>
  Shares(int64_t items, int64_t threads, const EndOf& end_of) : shares_(threads) {
    int64_t first = 0;
    for (int64_t t = 0; t < threads; ++t) {
      shares_[t].next.store(first, std::memory_order_relaxed);
      first = shares_[t].end = t + 1 < threads ? end_of(t) : items;
    }
  }

  static Shares of_equal_counts(int64_t items, int64_t threads) {
    return Shares(items, threads, [=](int64_t t) { return (t + 1) * items / threads; });
  }

  // Called by every thread of the team, each with its own number.
  template <class Body>
  void work(int64_t thread, const Body& body) {
    const int64_t threads = static_cast<int64_t>(shares_.size());
    for (int64_t k = 0; k < threads; ++k) {
      Share& share = shares_[(thread + k) % threads];
      while (true) {
        const int64_t item = share.next.fetch_add(1, std::memory_order_relaxed);
        if (item >= share.end) break;
        body(item);
      }
    }
  }

 private:
  struct alignas(64) Share {
    std::atomic<int64_t> next{0};
    int64_t end = 0;
  };
  std::vector<Share> shares_;
};

// Some rows times some panels of columns.
struct Part {
  int64_t first_row, end_row, first_panel, end_panel;
};

// Rows in blocks times panels of columns in groups: an item is one block times one group.
struct Grid {
  int64_t num_rows, panels;
  int64_t block_rows, blocks, groups;

  int64_t items() const { return blocks * groups; }

  Part part(int64_t item) const {
    const int64_t block = item / groups, group = item % groups;
    return {block * block_rows, std::min(num_rows, (block + 1) * block_rows), group * panels / groups,
            (group + 1) * panels / groups};
  }
};

}  // namespace infinity
