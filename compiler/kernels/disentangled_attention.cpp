// Disentangled attention over packed sequences (He et al. 2021): content against content, content
// against relative position, and position against content.
//
// Owns `infinity::disentangled_attention`, for float32 and bfloat16. One work item is (sequence,
// head). The products with positions are made once per distinct position that the sequence's
// distances reach, a block at a time, and are added by index to the scores: no tensor of the batch
// is quadratic.

#include "position_table.h"
#include "scratch.h"
#include "shares.h"
#include "softmax.h"
#include "tensor_view.h"
#include "tile.h"

#include <omp.h>

#include <algorithm>
#include <atomic>

namespace {

using namespace infinity;

constexpr int64_t kQueryBlock = 32;
constexpr int64_t kKeyBlock = 256;

template <class T>
struct Problem {
  Rows<const T> q, k, v, pos_key, pos_query;  // positions: [P, H, D]; without data where the term is absent
  Rows<T> out;
  Distances distances;
  int64_t heads, dim, v_dim;
  float scale;

  int64_t width() const { return round_up(steps_of<StepOf<T>>(dim), kLanes); }
  int64_t v_columns() const { return round_up(v_dim, kLanes); }
};

struct Buffers {
  float *queries, *spare, *keys, *keys_t, *values, *scores, *weights, *sums, *maxima, *totals;
  float *pos_key_t, *pos_query_t, *by_query, *by_key;
  int32_t* columns;

  template <class T>
  bool reserve(Scratch& scratch, const Problem<T>& p, int64_t longest) {
    const int64_t width = p.width(), positions = p.distances.max_columns(longest), row = positions + 2 * kPadding;
    const int64_t sizes[] = {kQueryBlock * width,     kLanes * width,          kKeyBlock * width,       width * kKeyBlock,
                             kKeyBlock * p.v_columns(), kQueryBlock * kKeyBlock, kQueryBlock * kKeyBlock, longest * p.v_columns(),
                             longest,                 longest,                 width * positions,       width * positions,
                             kQueryBlock * row,       kKeyBlock * row,         PositionTable::size(longest)};
    int64_t total = 0;
    for (const int64_t size : sizes) total += size;
    if (!scratch.reserve(total, 15)) return false;
    float** const slots[] = {&queries, &spare, &keys, &keys_t, &values, &scores, &weights, &sums,
                             &maxima, &totals, &pos_key_t, &pos_query_t, &by_query, &by_key};
    for (int i = 0; i < 14; ++i) *slots[i] = scratch.take(sizes[i]);
    columns = reinterpret_cast<int32_t*>(scratch.take(sizes[14]));
    return true;
  }
};

// One head of one sequence.
template <class T>
class Item {
  using Step = StepOf<T>;

 public:
  Item(const Problem<T>& problem, int64_t start, int64_t length, int64_t head, const Buffers& buffers)
      : p(problem), b(buffers), start(start), length(length), head(head), table(problem.distances, length, buffers.columns) {}

  void run() const {
    if (p.pos_key.data) pack_positions(p.pos_key, table.descending(), b.pos_key_t);
    if (p.pos_query.data) pack_positions(p.pos_query, table.ascending(), b.pos_query_t);
    std::fill_n(b.maxima, length, kMasked);
    std::fill_n(b.totals, length, 0.f);
    for (int64_t k0 = 0; k0 < length; k0 += kKeyBlock) {
      const int64_t keys = std::min(kKeyBlock, length - k0);
      pack_keys(k0, keys);
      for (int64_t q0 = 0; q0 < length; q0 += kQueryBlock) attend_block(q0, std::min(kQueryBlock, length - q0), k0, keys);
    }
    for (int64_t i = 0; i < length; ++i)
      write_row(b.sums + i * p.v_columns(), p.v_dim, b.totals[i], p.out.at(start + i, head));
  }

 private:
  void pack_positions(const Rows<const T>& positions, PositionOrder order, float* out) const {
    const auto row = [&](int64_t column) { return positions.at(order.first + column * order.step, head); };
    pack_transposed<Step, T>(row, table.count(), p.dim, b.spare, out, table.columns());
  }

  void pack_keys(int64_t k0, int64_t keys) const {
    const auto key = [&](int64_t i) { return p.k.at(start + k0 + i, head); };
    const auto value = [&](int64_t i) { return p.v.at(start + k0 + i, head); };
    pack_transposed<Step, T>(key, keys, p.dim, b.spare, b.keys_t, round_up(keys, kLanes));
    pack_values<Step, T>(value, keys, p.v_dim, b.values, p.v_columns());
    if (!p.pos_query.data) return;
    for (int64_t i = 0; i < keys; ++i) pack_row<Step, T>(key(i), p.dim, b.keys + i * p.width(), p.width());
    multiply_positions(b.keys, keys, b.pos_query_t, table.reach_of_keys(k0, keys), b.by_key);
  }

  // Products with the positions of a range of columns, into rows that are padded on both sides.
  void multiply_positions(const float* rows, int64_t num_rows, const float* positions_t, ColumnRange range, float* out) const {
    matmul<Step>(rows, p.width(), positions_t + range.begin, table.columns(), out + kPadding + range.begin, table.row(),
                 num_rows, range.end - range.begin, steps_of<Step>(p.dim), false);
  }

  void attend_block(int64_t q0, int64_t rows, int64_t k0, int64_t keys) const {
    const int64_t columns = round_up(keys, kLanes), v_columns = p.v_columns();
    for (int64_t r = 0; r < rows; ++r)
      pack_row<Step, T>(p.q.at(start + q0 + r, head), p.dim, b.queries + r * p.width(), p.width());
    matmul<Step>(b.queries, p.width(), b.keys_t, columns, b.scores, columns, rows, columns, steps_of<Step>(p.dim), false);
    if (p.pos_key.data) add_by_query(q0, rows, k0, keys);
    if (p.pos_query.data) add_by_key(q0, rows, k0, columns);
    for (int64_t r = 0; r < rows; ++r) {
      const float correction = softmax_row<Step>(b.scores + r * columns, columns, 0, keys, p.scale,
                                                 b.weights + r * columns / Step::kDepth, b.maxima + q0 + r, b.totals + q0 + r);
      if (k0 > 0) rescale(b.sums + (q0 + r) * v_columns, v_columns, correction);
    }
    matmul<Step>(b.weights, columns / Step::kDepth, b.values, v_columns, b.sums + q0 * v_columns, v_columns, rows, v_columns,
                 steps_of<Step>(keys), k0 > 0);
  }

  // Content to position: for one query, the columns of neighbouring keys lie side by side.
  void add_by_query(int64_t q0, int64_t rows, int64_t k0, int64_t keys) const {
    const int64_t columns = round_up(keys, kLanes);
    multiply_positions(b.queries, rows, b.pos_key_t, table.reach_of_block(q0, rows, k0, keys), b.by_query);
    for (int64_t r = 0; r < rows; ++r) {
      const float* const products = b.by_query + r * table.row() + kPadding;
      float* const scores = b.scores + r * columns;
      for (int64_t c = 0; c < columns; c += kLanes)
        store(scores + c, load(scores + c) + table.by_query(products, (k0 + c) - (q0 + r)));
    }
  }

  // Position to content: for one key, the columns of neighbouring queries lie side by side, so
  // squares of them are turned over.
  void add_by_key(int64_t q0, int64_t rows, int64_t k0, int64_t columns) const {
    for (int64_t c = 0; c < columns; c += kLanes) {
      for (int64_t r = 0; r < rows; r += kLanes) {
        Vec block[kLanes];
        for (int i = 0; i < kLanes; ++i)
          block[i] = table.by_key(b.by_key + (c + i) * table.row() + kPadding, (q0 + r) - (k0 + c + i));
        transpose_square(block);
        for (int i = 0; i < kLanes; ++i) {
          float* const scores = b.scores + (r + i) * columns + c;
          store(scores, load(scores) + block[i]);
        }
      }
    }
  }

  const Problem<T>& p;
  const Buffers& b;
  const int64_t start, length, head;
  const PositionTable table;
};

template <class T>
bool attend(const Problem<T>& p, const int32_t* bounds, int64_t num_sequences, int64_t num_tokens) {
  const int64_t used = bounds[num_sequences];
  if (num_tokens > used) std::memset(p.out.at(used, 0), 0, (num_tokens - used) * p.out.token_stride * sizeof(T));
  int64_t longest = 0;
  for (int64_t b = 0; b < num_sequences; ++b) longest = std::max<int64_t>(longest, bounds[b + 1] - bounds[b]);
  const int64_t threads = omp_get_max_threads();
  Shares shares(num_sequences * p.heads, threads, [&](int64_t t) {
    const int64_t end_row = (t + 1) * used / threads;
    return (std::lower_bound(bounds, bounds + num_sequences, end_row) - bounds) * p.heads;
  });
  std::atomic<bool> complete{true};
#pragma omp parallel
  {
    thread_local Scratch scratch;
    Buffers buffers;
    const bool ready = buffers.reserve(scratch, p, longest);
    if (!ready) complete = false;
    shares.work(omp_get_thread_num(), [&](int64_t i) {
      const int64_t b = i / p.heads, head = i % p.heads;
      if (ready && bounds[b + 1] > bounds[b]) Item<T>(p, bounds[b], bounds[b + 1] - bounds[b], head, buffers).run();
    });
  }
  return complete;
}

struct Arguments {
  TensorView q, k, v, pos_key, pos_query, delta, cu_seqlens;
  double scale;

  bool are_valid() const {
    return is_supported(q) && scale > 0.0 && is_like_queries(k) && k.sizes[0] == q.sizes[0] && k.sizes[2] == q.sizes[2] &&
           is_like_queries(v) && v.sizes[0] == q.sizes[0] && delta.dtype == aoti_torch_dtype_int32() &&
           delta.sizes[0] % 2 == 1 && distances().are_within(INT64_MAX) && are_positions(pos_key) &&
           are_positions(pos_query) && are_bounds(cu_seqlens, q.sizes[0]);
  }
  bool is_like_queries(const TensorView& other) const { return other.dtype == q.dtype && other.sizes[1] == q.sizes[1]; }
  bool are_positions(const TensorView& positions) const {
    return positions.data == nullptr ||
           (is_like_queries(positions) && positions.sizes[2] == q.sizes[2] && distances().are_within(positions.sizes[0]));
  }
  Distances distances() const { return {delta.as<const int32_t>(), delta.sizes[0] / 2}; }

  template <class T>
  bool run(const TensorView& out) const {
    const Problem<T> problem{rows_of<const T>(q),       rows_of<const T>(k),         rows_of<const T>(v),
                             rows_of<const T>(pos_key), rows_of<const T>(pos_query), rows_of<T>(out),
                             distances(),               q.sizes[1],                  q.sizes[2],
                             v.sizes[2],                static_cast<float>(scale)};
    return attend(problem, cu_seqlens.as<const int32_t>(), cu_seqlens.sizes[0] - 1, q.sizes[0]);
  }
};

}  // namespace

// q, k (T, H, D) and v (T, H, Dv), float32 or bfloat16; cu_seqlens (B + 1,) int32. pos_key, pos_query
// (P, H, D), or null for a term that is absent; delta (2 R + 1,) int32, monotonous: the row of the
// distance d = i - j at R + d, distances beyond R take the ends. The score of query i and key j is
// scale * (q_i.k_j + q_i.pos_key[d] + k_j.pos_query[d]). Returns a new (T, H, Dv) tensor; tokens of no
// sequence yield zeros.
INFINITY_EXPORT AOTITorchError INFINITY_JOIN(aoti_torch_cpu_disentangled_attention, INFINITY_DIGEST)(
    AtenTensorHandle q, AtenTensorHandle k, AtenTensorHandle v, AtenTensorHandle* pos_key, AtenTensorHandle* pos_query,
    AtenTensorHandle delta, AtenTensorHandle cu_seqlens, double scale, AtenTensorHandle* ret) {
  return guarded([&] {
    Arguments a{{}, {}, {}, {}, {}, {}, {}, scale};
    TensorView out;
    if (!read_view(q, 3, &a.q) || !read_view(k, 3, &a.k) || !read_view(v, 3, &a.v) || !read_optional(pos_key, 3, &a.pos_key) ||
        !read_optional(pos_query, 3, &a.pos_query) || !read_view(delta, 1, &a.delta) ||
        !read_view(cu_seqlens, 1, &a.cu_seqlens) || !a.are_valid())
      return false;
    const int64_t sizes[] = {a.q.sizes[0], a.q.sizes[1], a.v.sizes[2]};
    if (!make_output(3, sizes, a.q.dtype, ret, &out)) return false;
    return fill_output(ret, [&] { return is_float32(a.q) ? a.run<float>(out) : a.run<BFloat16>(out); });
  });
}
