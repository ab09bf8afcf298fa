// From distances between tokens to the columns of their products with relative positions.
//
// Only positions that the distances of one sequence reach get a column. Near 0 every distance has a
// position of its own, far away many share one; both are read without a gather where whole vectors
// allow it.
#pragma once

#include "kernel_common.h"

#include <immintrin.h>

#include <algorithm>
#include <cstdlib>
#include <functional>

namespace infinity {

// Rows of products are padded on both sides by what vectors at the edges of a block read too much;
// the table is as well, by a block of queries and a vector.
constexpr int64_t kPadding = 64;

// Which position each distance has: delta[reach + d], never falling or never rising.
struct Distances {
  const int32_t* delta;
  int64_t reach;

  int64_t position(int64_t distance) const { return delta[reach + std::clamp(distance, -reach, reach)]; }
  bool are_within(int64_t num_positions) const {
    const int64_t count = 2 * reach + 1;
    const auto [low, high] = std::minmax(delta[0], delta[count - 1]);
    return low >= 0 && high < num_positions &&
           (std::is_sorted(delta, delta + count) || std::is_sorted(delta, delta + count, std::greater<int32_t>()));
  }
  // An upper bound of the columns of any sequence up to this length.
  int64_t max_columns(int64_t length) const {
    const int64_t span = position(length - 1) - position(1 - length);
    return length == 0 ? 0 : round_up(std::abs(span) + 1, kLanes);
  }
};

struct PositionOrder {  // of the columns: column c holds position first + c * step
  int64_t first, step;
};
struct ColumnRange {  // whole vectors
  int64_t begin, end;
};

class PositionTable {
 public:
  // Room for the table of a sequence, in 32-bit integers.
  static int64_t size(int64_t length) { return 2 * (2 * length + 2 * kPadding); }

  // `storage` outlives the table.
  PositionTable(const Distances& distances, int64_t length, int32_t* storage) : length_(length) {
    const int64_t first = distances.position(1 - length), last = distances.position(length - 1);
    const int64_t step = last < first ? -1 : 1, half = size(length) / 2;
    count_ = (last - first) * step + 1;
    ascending_ = {first, step};
    by_key_ = storage + half / 2;
    by_query_ = by_key_ + half;
    for (int64_t d = 1 - length; d < length; ++d) {
      const int32_t column = static_cast<int32_t>((distances.position(d) - first) * step);
      by_key_[d] = column;
      by_query_[-d] = static_cast<int32_t>(count_ - 1) - column;
    }
    // Steps of one on both sides, so that vectors across the edges of the sequence are like others.
    for (int64_t i = 0; i < kPadding; ++i) {
      by_key_[length + i] = by_query_[length + i] = static_cast<int32_t>(count_ + i);
      by_key_[-length - i] = by_query_[-length - i] = static_cast<int32_t>(-1 - i);
    }
    steps_by_one_ = true;
    for (int64_t d = 1 - length; d + 1 < length; ++d) steps_by_one_ &= by_key_[d + 1] - by_key_[d] <= 1;
  }

  int64_t count() const { return count_; }
  int64_t columns() const { return round_up(count_, kLanes); }
  int64_t row() const { return columns() + 2 * kPadding; }  // of products, padded

  // Columns in the order of rising distances i - j, and the other way round.
  PositionOrder ascending() const { return ascending_; }
  PositionOrder descending() const { return {ascending_.first + (count_ - 1) * ascending_.step, -ascending_.step}; }

  // Ascending columns that queries of the whole sequence need of a block of keys.
  ColumnRange reach_of_keys(int64_t k0, int64_t keys) const { return range(by_key_, 1 - k0 - keys, length_ - 1 - k0); }
  // Descending columns that a block of queries needs of a block of keys.
  ColumnRange reach_of_block(int64_t q0, int64_t rows, int64_t k0, int64_t keys) const {
    return range(by_query_, k0 - (q0 + rows - 1), k0 + keys - 1 - q0);
  }

  // Products of one query with the positions of kLanes keys, from the distance j - i on.
  Vec by_query(const float* products, int64_t distance) const { return read(products, by_query_ + distance); }
  // Products of one key with the positions of kLanes queries, from the distance i - j on.
  Vec by_key(const float* products, int64_t distance) const { return read(products, by_key_ + distance); }

 private:
  static ColumnRange range(const int32_t* table, int64_t from, int64_t to) {
    return {table[from] / kLanes * kLanes, round_up(table[to] + 1, kLanes)};
  }

  Vec read(const float* products, const int32_t* columns) const {
    const int64_t span = columns[kLanes - 1] - columns[0];
    if (span == 0) return splat(products[columns[0]]);
    if (span == kLanes - 1 && steps_by_one_) return load(products + columns[0]);
    return gather(products, columns);
  }

  static Vec gather(const float* products, const int32_t* columns) {
#if defined(__AVX512F__)
    return (Vec)_mm512_i32gather_ps(_mm512_loadu_si512(columns), products, 4);
#else
    return (Vec)_mm256_i32gather_ps(products, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(columns)), 4);
#endif
  }

  int64_t length_, count_;
  PositionOrder ascending_;
  int32_t *by_key_, *by_query_;
  bool steps_by_one_;
};

}  // namespace infinity
