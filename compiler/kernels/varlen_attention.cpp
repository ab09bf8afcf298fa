// Attention over packed sequences on x86-64 CPUs.
//
// Owns one operator, `infinity::varlen_attention`, for float32 and bfloat16. One work item is
// (sequence, head, some blocks of queries); each streams over blocks of keys with an online softmax,
// so no S x S matrix exists, not even of biases: those depend on the distance alone. Blocks of keys
// start at multiples of their size, so that a text's numbers do not depend on how work is divided.

#include "score_adjustment.h"
#include "scratch.h"
#include "softmax.h"
#include "tensor_view.h"
#include "tile.h"

#include <omp.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <vector>

namespace {

using namespace infinity;

constexpr int64_t kQueryBlock = 32;
constexpr int64_t kKeyBlock = 256;
constexpr int64_t kItemsPerThread = 4;
constexpr int64_t kMaxBlocks = 8;  // of queries that one work item takes: they share packed keys

template <class T>
struct Problem {
  Rows<const T> q, k, v;
  Rows<T> out;
  int64_t heads, kv_heads, dim, v_dim;
  bool causal;
  int64_t window;
  Adjustment adjustment;

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

struct WorkItem {
  TokenRows rows;
  int64_t length, num_keys, first_query, end_query;
  int64_t head;
};

struct Buffers {
  float *queries, *spare, *keys_t, *values, *scores, *weights, *biases;
  float *sums, *maxima, *totals;  // of all queries of a work item

  bool reserve(Scratch& scratch, int64_t width, int64_t v_columns) {
    constexpr int64_t kQueries = kMaxBlocks * kQueryBlock;
    const int64_t sizes[] = {kQueryBlock * width,     kLanes * width,           width * kKeyBlock,    kKeyBlock * v_columns,
                             kQueryBlock * kKeyBlock, kQueryBlock * kKeyBlock,  kKeyBlock + kQueryBlock,
                             kQueries * v_columns,    kQueries,                 kQueries};
    float** const slots[] = {&queries, &spare, &keys_t, &values, &scores, &weights, &biases, &sums, &maxima, &totals};
    int64_t total = 0;
    for (const int64_t size : sizes) total += size;
    if (!scratch.reserve(total, 10)) return false;
    for (int i = 0; i < 10; ++i) *slots[i] = scratch.take(sizes[i]);
    return true;
  }
};

template <class T>
class Item {
  using Step = StepOf<T>;

 public:
  Item(const Problem<T>& problem, const WorkItem& work, const Buffers& buffers)
      : p(problem),
        item(work),
        b(buffers),
        kv_head(work.head / (problem.heads / problem.kv_heads)),
        width(round_up(steps_of<Step>(problem.dim), kLanes)),
        v_columns(round_up(problem.v_dim, kLanes)) {}

  void run() const {
    const int64_t queries = item.end_query - item.first_query;
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
      T* const out = p.out.at(item.rows[query], item.head);
      if (p.first_key(query) < end_key(query))
        write_row(b.sums + i * v_columns, p.v_dim, b.totals[i], out);
      else
        std::memset(out, 0, p.v_dim * sizeof(T));
    }
  }

 private:
  int64_t end_key(int64_t query) const { return std::min(p.end_key(query, item.length), item.num_keys); }

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
      return {reinterpret_cast<const float*>(p.q.at(queries[0], item.head)), p.q.token_stride / Step::kDepth};
    for (int64_t r = 0; r < rows; ++r)
      pack_row<Step, T>(p.q.at(queries[r], item.head), p.dim, b.queries + r * width, width);
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
    if (adjusts) p.adjustment.expand(item.head, k0 - (q0 + rows - 1), columns + rows - 1, b.biases);
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

  const Problem<T>& p;
  const WorkItem& item;
  const Buffers& b;
  const int64_t kv_head, width, v_columns;
};

// Packed sequences, some of whose tokens may lie in rows of earlier sequences.
struct Packing {
  const int32_t* bounds;
  int64_t num_sequences;
  const int64_t* table;          // row of each packed token, or null
  const int32_t* key_counts;     // of each sequence, how many leading tokens are keys, or null
  std::vector<int64_t> shared;   // per sequence: its leading tokens that earlier sequences own
  int64_t num_rows = 0;          // rows that belong to a sequence

  // Reads the table; false unless each sequence's own rows follow on those seen before it.
  bool read() {
    shared.assign(num_sequences, 0);
    for (int64_t b = 0; b < num_sequences; ++b) {
      int64_t t = bounds[b];
      if (num_keys(b) < 0 || num_keys(b) > bounds[b + 1] - t) return false;
      const int64_t seen = num_rows;
      for (; table && t < bounds[b + 1] && table[t] < seen; ++t)
        if (table[t] < 0) return false;
      shared[b] = t - bounds[b];
      for (; t < bounds[b + 1]; ++t)
        if (const int64_t row = num_rows++; table && table[t] != row) return false;
    }
    return true;
  }

  int64_t num_keys(int64_t b) const { return key_counts ? key_counts[b] : bounds[b + 1] - bounds[b]; }

  int64_t own_tokens(int64_t b) const { return bounds[b + 1] - bounds[b] - shared[b]; }

  // Larger items share more work, smaller ones keep all threads busy.
  int64_t blocks_per_item(int64_t heads) const {
    int64_t blocks = 0;
    for (int64_t b = 0; b < num_sequences; ++b) blocks += heads * (own_tokens(b) + kQueryBlock - 1) / kQueryBlock;
    return std::clamp<int64_t>(blocks / (kItemsPerThread * omp_get_max_threads()), 1, kMaxBlocks);
  }

  std::vector<WorkItem> work_items(int64_t heads) const {
    const int64_t queries = blocks_per_item(heads) * kQueryBlock;
    std::vector<WorkItem> items;
    for (int64_t b = 0; b < num_sequences; ++b) {
      const int64_t length = bounds[b + 1] - bounds[b];
      for (int64_t head = 0; head < heads; ++head)
        for (int64_t first = shared[b]; first < length; first += queries)
          items.push_back({{bounds[b], table}, length, num_keys(b), first, std::min(length, first + queries), head});
    }
    return items;
  }
};

template <class T>
bool attend(const Problem<T>& p, const Packing& packing, int64_t num_stored) {
  if (num_stored > packing.num_rows)
    std::memset(p.out.at(packing.num_rows, 0), 0, (num_stored - packing.num_rows) * p.out.token_stride * sizeof(T));
  const std::vector<WorkItem> items = packing.work_items(p.heads);
  const int64_t num_items = static_cast<int64_t>(items.size());
  const int chunk = static_cast<int>(std::clamp<int64_t>(num_items / (kItemsPerThread * omp_get_max_threads()), 1, 8));
  std::atomic<bool> complete{true};
#pragma omp parallel
  {
    thread_local Scratch scratch;
    Buffers buffers;
    const bool ready = buffers.reserve(scratch, round_up(steps_of<StepOf<T>>(p.dim), kLanes), round_up(p.v_dim, kLanes));
    if (!ready) complete = false;
#pragma omp for schedule(dynamic, chunk)
    for (int64_t i = 0; i < num_items; ++i)
      if (ready) Item<T>(p, items[i], buffers).run();
  }
  return complete;
}

struct Arguments {
  TensorView q, k, v, cu_seqlens, bias, rows, key_counts;
  bool causal;
  int64_t window;
  double scale, softcap;

  bool are_valid() const {
    const bool fits = is_supported(q) && k.dtype == q.dtype && v.dtype == q.dtype && k.sizes[0] == q.sizes[0] &&
                      v.sizes[0] == q.sizes[0] && k.sizes[2] == q.sizes[2] && v.sizes[1] == k.sizes[1] && k.sizes[1] > 0 &&
                      q.sizes[1] % k.sizes[1] == 0 && scale > 0.0 && softcap >= 0.0 && !(causal && window == 0);
    return fits && is_bias() && are_rows() && are_key_counts() && are_bounds(cu_seqlens, rows.data ? rows.sizes[0] : q.sizes[0]);
  }
  bool is_bias() const {
    return bias.data == nullptr || (is_float32(bias) && bias.sizes[0] == q.sizes[1] && bias.sizes[1] % 2 == 1);
  }
  bool are_rows() const { return rows.data == nullptr || rows.dtype == aoti_torch_dtype_int64(); }
  bool are_key_counts() const {
    return key_counts.data == nullptr ||
           (key_counts.dtype == aoti_torch_dtype_int32() && key_counts.sizes[0] == cu_seqlens.sizes[0] - 1);
  }
  Packing packing() const {
    return {cu_seqlens.as<const int32_t>(), cu_seqlens.sizes[0] - 1, rows.as<const int64_t>(), key_counts.as<const int32_t>(), {}};
  }

  template <class T>
  bool run(const TensorView& out, const Packing& packing) const {
    const Adjustment adjustment{bias.as<const float>(), bias.strides[0], bias.sizes[1] / 2, static_cast<float>(softcap),
                                static_cast<float>(scale)};
    const Problem<T> problem{rows_of<const T>(q), rows_of<const T>(k), rows_of<const T>(v), rows_of<T>(out), q.sizes[1],
                             k.sizes[1],          q.sizes[2],          v.sizes[2],          causal,          window,
                             adjustment};
    return attend<T>(problem, packing, q.sizes[0]);
  }
};

}  // namespace

// q (N, H, D), k (N, Hkv, D) and v (N, Hkv, Dv), float32 or bfloat16; cu_seqlens (B + 1,) int32 over T
// packed tokens. rows (T,) int64: the row of each token; null: token t lies in row t. The leading
// tokens of a sequence may lie in rows of earlier ones; the others follow on the rows seen so far,
// and only they are computed as queries. Rows of no sequence yield zeros.
// key_counts (B,) int32 or null: only so many leading tokens of a sequence are keys; a query that sees
// none yields zeros.
// distance_bias (H, 2 R + 1) float32 or null: added to the scores, [h, R + (j - i)] for query i and key
// j, distances beyond R take the ends. softcap 0: none; else scores become softcap * tanh(score /
// softcap) before. window < 0: none; else keys with |i - j| <= window, or 0 <= i - j < window when
// causal. Returns a new (N, H, Dv) tensor.
INFINITY_EXPORT AOTITorchError INFINITY_JOIN(aoti_torch_cpu_varlen_attention, INFINITY_DIGEST)(
    AtenTensorHandle q, AtenTensorHandle k, AtenTensorHandle v, AtenTensorHandle cu_seqlens, AtenTensorHandle* distance_bias,
    AtenTensorHandle* rows, AtenTensorHandle* key_counts, int32_t causal, int64_t window, double scale, double softcap, AtenTensorHandle* ret) {
  return guarded([&] {
    Arguments a{{}, {}, {}, {}, {}, {}, {}, causal != 0, window, scale, softcap};
    if (!read_view(q, 3, &a.q) || !read_view(k, 3, &a.k) || !read_view(v, 3, &a.v) || !read_view(cu_seqlens, 1, &a.cu_seqlens) ||
        !read_optional(distance_bias, 2, &a.bias) || !read_optional(rows, 1, &a.rows) ||
        !read_optional(key_counts, 1, &a.key_counts) || !a.are_valid())
      return false;
    Packing packing = a.packing();
    TensorView out;
    const int64_t sizes[] = {a.q.sizes[0], a.q.sizes[1], a.v.sizes[2]};
    if (!packing.read() || packing.num_rows > a.q.sizes[0] || !make_output(3, sizes, a.q.dtype, ret, &out)) return false;
    return fill_output(ret, [&] { return is_float32(a.q) ? a.run<float>(out, packing) : a.run<BFloat16>(out, packing); });
  });
}
