// Attention over packed sequences on x86-64 CPUs.
//
// Owns one operator, `infinity::varlen_attention`, for float32 and bfloat16. One work item is some
// heads of some queries of a sequence; each goes over blocks of keys with an online softmax, so no
// S x S matrix exists, not even of biases: those depend on the distance alone.

#include "amx_attention.h"
#include "attention_problem.h"
#include "scratch.h"
#include "shares.h"
#include "tensor_view.h"
#include "vector_attention.h"

#include <omp.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <vector>

namespace {

using namespace infinity;

constexpr int64_t kItemsPerThread = 4;

template <class Kernel, class T>
bool attend(const AttentionProblem<T>& p, const PackedSequences& sequences) {
  const int64_t used = sequences.num_rows(), threads = omp_get_max_threads(), wanted_items = kItemsPerThread * threads;
  if (p.num_rows > used) std::memset(p.out.at(used, 0), 0, (p.num_rows - used) * p.out.token_stride * sizeof(T));
  const std::vector<AttentionItem> items = sequences.items(p.heads, Kernel::kItemBlock, Kernel::kMaxRows, wanted_items);
  Shares shares(static_cast<int64_t>(items.size()), threads, [&](int64_t t) {
    const int64_t end_token = (t + 1) * sequences.num_tokens() / threads;
    const auto end = std::partition_point(items.begin(), items.end(), [=](const AttentionItem& item) {
      return item.rows.start + item.first_query < end_token;
    });
    return end - items.begin();
  });
  std::atomic<bool> complete{true};
#pragma omp parallel
  {
    thread_local Scratch scratch;
    Kernel kernel(p);
    const bool ready = kernel.reserve(scratch);
    if (!ready) complete = false;
    shares.work(omp_get_thread_num(), [&](int64_t i) {
      if (ready) kernel.run(items[i]);
    });
  }
  return complete;
}

// With the matrix unit where there is one and the system lets us.
template <class T>
bool attend(const AttentionProblem<T>& p, const PackedSequences& sequences) {
#if defined(__AMX_BF16__)
  if constexpr (std::is_same_v<T, BFloat16>)
    if (may_use_tiles()) return attend<TileAttention>(p, sequences);
#endif
  return attend<VectorAttention<T>>(p, sequences);
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
  PackedSequences sequences() const {
    return {cu_seqlens.as<const int32_t>(), cu_seqlens.sizes[0] - 1, rows.as<const int64_t>(), key_counts.as<const int32_t>()};
  }

  template <class T>
  bool run(const TensorView& out, const PackedSequences& sequences) const {
    const Adjustment adjustment{bias.as<const float>(), bias.strides[0], bias.sizes[1] / 2, static_cast<float>(softcap),
                                static_cast<float>(scale)};
    const AttentionProblem<T> problem{rows_of<const T>(q), rows_of<const T>(k), rows_of<const T>(v), rows_of<T>(out),
                                      q.sizes[0],          q.sizes[1],          k.sizes[1],          q.sizes[2],
                                      v.sizes[2],          causal,              window,              adjustment};
    return attend(problem, sequences);
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
    PackedSequences sequences = a.sequences();
    TensorView out;
    const int64_t sizes[] = {a.q.sizes[0], a.q.sizes[1], a.v.sizes[2]};
    if (!sequences.read() || sequences.num_rows() > a.q.sizes[0] || !make_output(3, sizes, a.q.dtype, ret, &out)) return false;
    return fill_output(ret, [&] { return is_float32(a.q) ? a.run<float>(out, sequences) : a.run<BFloat16>(out, sequences); });
  });
}
