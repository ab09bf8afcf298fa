// Attention by products of vectors, for float32 and bfloat16.
//
// Each head streams over blocks of keys with an online softmax. Blocks of keys start at multiples of
// their size, so that a text's numbers do not depend on how work is divided.
#pragma once

#include "attention_problem.h"
#include "scratch.h"
#include "softmax.h"
#include "tile.h"

#include <algorithm>
#include <cstring>

namespace infinity {

constexpr int64_t kQueryBlock = 32;
constexpr int64_t kKeyBlock = 256;
constexpr int64_t kMaxQueries = 256;  // of an item: they share packed keys

struct VectorBuffers {
  float *queries, *spare, *keys_t, *values, *scores, *weights, *biases;
  float *sums, *maxima, *totals;  // of all queries of an item

  bool reserve(Scratch& scratch, int64_t width, int64_t v_columns) {
    const int64_t sizes[] = {kQueryBlock * width,     kLanes * width,           width * kKeyBlock,    kKeyBlock * v_columns,
                             kQueryBlock * kKeyBlock, kQueryBlock * kKeyBlock,  kKeyBlock + kQueryBlock,
                             kMaxQueries * v_columns, kMaxQueries,              kMaxQueries};
    float** const slots[] = {&queries, &spare, &keys_t, &values, &scores, &weights, &biases, &sums, &maxima, &totals};
    int64_t total = 0;
    for (const int64_t size : sizes) total += size;
    if (!scratch.reserve(total, 10)) return false;
    for (int i = 0; i < 10; ++i) *slots[i] = scratch.take(sizes[i]);
    return true;
  }
};

// One head of an item.
template <class T>
class VectorHead {
  using Step = StepOf<T>;

 public:
  VectorHead(const AttentionProblem<T>& problem, const AttentionItem& work, int64_t head, const VectorBuffers& buffers)
      : p(problem),
        item(work),
        b(buffers),
        head(head),
        kv_head(problem.kv_head(head)),
        width(round_up(steps_of<Step>(problem.dim), kLanes)),
        v_columns(round_up(problem.v_dim, kLanes)) {}

  void run() const {
    const int64_t queries = item.num_queries();
    std::fill_n(b.maxima, queries, kMasked);
    std::fill_n(b.totals, queries, 0.f);
    const int64_t key_end = end_key(item.end_query - 1);
    for (int64_t k0 = first_block(item.first_query); k0 < key_end; k0 += kKeyBlock) {
      const int64_t k1 = std::min(k0 + kKeyBlock, key_end);
      pack_keys(k0, k1 - k0);
      for (int64_t q0 = item.first_query; q0 < item.end_query; q0 += kQueryBlock) attend_block(q0, k0, k1);
    }
    for (int64_t i = 0; i < queries; ++i) {
      const int64_t query = item.first_query + i;
      T* const out = p.out.at(item.rows[query], head);
      if (p.first_key(query) < end_key(query))
        write_row(b.sums + i * v_columns, p.v_dim, b.totals[i], out);
      else
        std::memset(out, 0, p.v_dim * sizeof(T));
    }
  }

 private:
  int64_t end_key(int64_t query) const { return item.end_key(p, query); }

  // Start of the first block of keys that a query sees.
  int64_t first_block(int64_t query) const { return p.first_key(query) / kKeyBlock * kKeyBlock; }

  void pack_keys(int64_t k0, int64_t keys) const {
    const auto key = [&, tokens = item.rows.from(k0)](int64_t i) { return p.k.at(tokens[i], kv_head); };
    const auto value = [&, tokens = item.rows.from(k0)](int64_t i) { return p.v.at(tokens[i], kv_head); };
    pack_transposed<Step, T>(key, keys, p.dim, b.spare, b.keys_t, round_up(keys, kLanes));
    pack_values<Step, T>(value, keys, p.v_dim, b.values, v_columns);
  }

  struct Queries {
    const float* first;
    int64_t stride;  // in steps
  };

  // A block of queries where it lies, or packed if it does not lie there as steps.
  Queries read_queries(int64_t q0, int64_t rows) const {
    const TokenRows queries = item.rows.from(q0);
    const bool are_steps = std::is_same_v<T, typename Step::Element> && p.dim % Step::kDepth == 0 && p.q.token_stride % Step::kDepth == 0;
    if (are_steps && queries.table == nullptr)
      return {reinterpret_cast<const float*>(p.q.at(queries[0], head)), p.q.token_stride / Step::kDepth};
    for (int64_t r = 0; r < rows; ++r)
      pack_row<Step, T>(p.q.at(queries[r], head), p.dim, b.queries + r * width, width);
    return {b.queries, width};
  }

  // One block of queries against what it sees of the packed keys, [k0, k1).
  void attend_block(int64_t q0, int64_t k0, int64_t k1) const {
    const int64_t rows = std::min(kQueryBlock, item.end_query - q0);
    const int64_t begin = std::max(k0, p.first_key(q0) / kLanes * kLanes);
    const int64_t keys = std::min(k1, end_key(q0 + rows - 1)) - begin;
    if (keys <= 0) return;
    const int64_t columns = round_up(keys, kLanes), packed = round_up(k1 - k0, kLanes);
    const Queries queries = read_queries(q0, rows);
    matmul<Step>(queries.first, queries.stride, b.keys_t + (begin - k0), packed, b.scores, columns, rows, columns,
                 steps_of<Step>(p.dim), false);
    const bool is_first = k0 == first_block(q0);
    float* const sums = b.sums + (q0 - item.first_query) * v_columns;
    take_weights(q0, rows, begin, keys, is_first ? nullptr : sums);
    matmul<Step>(b.weights, columns / Step::kDepth, b.values + (begin - k0) / Step::kDepth * v_columns, v_columns, sums,
                 v_columns, rows, v_columns, steps_of<Step>(keys), !is_first);
  }

  // Softmax numerators of a block of scores; rescales what was summed before, if anything.
  void take_weights(int64_t q0, int64_t rows, int64_t k0, int64_t keys, float* sums) const {
    const int64_t columns = round_up(keys, kLanes), state = q0 - item.first_query;
    const bool adjusts = !p.adjustment.is_none();
    if (adjusts) p.adjustment.expand(head, k0 - (q0 + rows - 1), columns + rows - 1, b.biases);
    for (int64_t r = 0; r < rows; ++r) {
      const int64_t from = std::clamp<int64_t>(p.first_key(q0 + r) - k0, 0, keys);
      const int64_t to = std::clamp<int64_t>(end_key(q0 + r) - k0, 0, keys);
      float* const scores = b.scores + r * columns;
      if (adjusts) p.adjustment.apply(scores, b.biases + (rows - 1 - r), columns);
      const float correction =
          softmax_row<Step>(scores, columns, from, to, p.adjustment.softmax_scale(), b.weights + r * columns / Step::kDepth,
                            b.maxima + state + r, b.totals + state + r);
      if (sums) rescale(sums + r * v_columns, v_columns, correction);
    }
  }

  const AttentionProblem<T>& p;
  const AttentionItem& item;
  const VectorBuffers& b;
  const int64_t head, kv_head, width, v_columns;
};

template <class T>
class VectorAttention {
 public:
  static constexpr int64_t kItemBlock = kQueryBlock;
  static constexpr int64_t kMaxRows = kMaxQueries;

  explicit VectorAttention(const AttentionProblem<T>& problem) : p(problem) {}

  // False when there is no memory.
  bool reserve(Scratch& scratch) {
    return buffers_.reserve(scratch, round_up(steps_of<StepOf<T>>(p.dim), kLanes), round_up(p.v_dim, kLanes));
  }

  void run(const AttentionItem& item) const {
    for (int64_t head = item.first_head; head < item.end_head; ++head) VectorHead<T>(p, item, head, buffers_).run();
  }

 private:
  const AttentionProblem<T>& p;
  VectorBuffers buffers_;
};

}  // namespace infinity
