// What attention is computed over: tensors, what a query sees, and how the work is divided.
#pragma once

#include "kernel_common.h"
#include "score_adjustment.h"
#include "tensor_view.h"

#include <algorithm>
#include <vector>

namespace infinity {

template <class T>
struct AttentionProblem {
  Rows<const T> q, k, v;
  Rows<T> out;
  int64_t num_rows;  // of each of these
  int64_t heads, kv_heads, dim, v_dim;
  bool causal;
  int64_t window;
  Adjustment adjustment;

  int64_t kv_head(int64_t head) const { return head / (heads / kv_heads); }

  // Keys visible to query i of a sequence: [first_key(i), end_key(i, length)).
  int64_t first_key(int64_t i) const {
    if (window < 0) return 0;
    return std::max<int64_t>(0, causal ? i - window + 1 : i - window);
  }
  int64_t end_key(int64_t i, int64_t length) const {
    if (causal) return i + 1;
    return window < 0 ? length : std::min(length, i + window + 1);
  }
};

// Some heads of some queries of one sequence. Either it is one head, or all keys of the sequence
// together, head by head, are no more rows than an item may have.
struct AttentionItem {
  TokenRows rows;
  int64_t length, num_keys;
  int64_t first_query, end_query;
  int64_t first_head, end_head;

  int64_t num_queries() const { return end_query - first_query; }

  template <class T>
  int64_t end_key(const AttentionProblem<T>& problem, int64_t query) const {
    return std::min(problem.end_key(query, length), num_keys);
  }
};

// Packed sequences, some of whose tokens may lie in rows of earlier sequences.
class PackedSequences {
 public:
  PackedSequences(const int32_t* bounds, int64_t num_sequences, const int64_t* table, const int32_t* key_counts)
      : bounds_(bounds), num_sequences_(num_sequences), table_(table), key_counts_(key_counts) {}

  // Reads the table; false unless each sequence's own rows follow on those seen before it.
  bool read() {
    shared_.assign(num_sequences_, 0);
    for (int64_t b = 0; b < num_sequences_; ++b) {
      int64_t t = bounds_[b];
      if (num_keys(b) < 0 || num_keys(b) > length(b)) return false;
      const int64_t seen = num_rows_;
      for (; table_ && t < bounds_[b + 1] && table_[t] < seen; ++t)
        if (table_[t] < 0) return false;
      shared_[b] = t - bounds_[b];
      for (; t < bounds_[b + 1]; ++t)
        if (const int64_t row = num_rows_++; table_ && table_[t] != row) return false;
    }
    return true;
  }

  int64_t num_tokens() const { return bounds_[num_sequences_]; }

  // Rows that belong to a sequence.
  int64_t num_rows() const { return num_rows_; }

  // Items of at most `max_rows` rows, a row being one head of one query: larger items share more
  // packed keys, smaller ones keep all threads busy. Queries are divided at multiples of `block`. In the
  // order of the queries.
  std::vector<AttentionItem> items(int64_t heads, int64_t block, int64_t max_rows, int64_t min_items) const {
    const int64_t wanted = num_rows_ * heads / min_items / block * block;
    const int64_t rows = std::clamp(wanted, block, max_rows);
    std::vector<AttentionItem> items;
    for (int64_t b = 0; b < num_sequences_; ++b) append_items(b, heads, block, rows, items);
    return items;
  }

 private:
  void append_items(int64_t b, int64_t heads, int64_t block, int64_t rows, std::vector<AttentionItem>& items) const {
    const int64_t together = std::clamp<int64_t>(rows / std::max(round_up(length(b), block), block), 1, heads);
    for (int64_t first = shared_[b]; first < length(b); first += rows)
      for (int64_t head = 0; head < heads; head += together)
        items.push_back({{bounds_[b], table_}, length(b), num_keys(b), first, std::min(length(b), first + rows), head,
                         std::min(heads, head + together)});
  }

  int64_t length(int64_t b) const { return bounds_[b + 1] - bounds_[b]; }
  int64_t num_keys(int64_t b) const { return key_counts_ ? key_counts_[b] : length(b); }

  const int32_t* bounds_;
  int64_t num_sequences_;
  const int64_t* table_;         // row of each packed token, or null
  const int32_t* key_counts_;    // of each sequence, how many leading tokens are keys, or null
  std::vector<int64_t> shared_;  // per sequence: its leading tokens that earlier sequences own
  int64_t num_rows_ = 0;
};

}  // namespace infinity
