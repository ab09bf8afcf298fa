// Attention over packed sequences on x86-64 CPUs.
//
// Owns one operator, `infinity::varlen_attention`, for float32 and bfloat16. Speaks only the C
// interface of torch's AOTInductor shim, so the library depends on no C++ class of torch. One work
// item is (sequence, head, block of queries); each streams over blocks of keys with an online
// softmax (Milakov and Gimelshein 2018; Dao et al. 2022), so no S x S matrix exists.
//
// Vector width and bfloat16 products follow the compile flags: -march=x86-64-v3 gives AVX2,
// x86-64-v4 AVX-512, and -mavx512bf16 multiplies bfloat16 pairs in hardware; without it bfloat16 is
// widened to float32 while it is copied.

#include "kernel_common.h"

#include <immintrin.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <vector>

namespace {

using namespace infinity;

constexpr int64_t kQueryBlock = 32;
constexpr int64_t kKeyBlock = 256;
// Finite, so that (masked - masked) is 0 and not NaN; whatever a fully masked block adds is scaled
// by exp(kMasked - max) = 0 later.
constexpr float kMasked = -1e30f;

inline Vec vmax(Vec a, Vec b) { return a > b ? a : b; }

inline float reduce_max(Vec v) {
  float result = v[0];
  for (int i = 1; i < kLanes; ++i) result = std::max(result, v[i]);
  return result;
}
inline float reduce_add(Vec v) {
  float result = 0.f;
  for (int i = 0; i < kLanes; ++i) result += v[i];
  return result;
}

// exp(x) for x <= 0, relative error below 2e-7: x = n ln2 + r with |r| <= ln2 / 2, then the Taylor
// polynomial of degree 7 in r.
inline Vec exp_nonpositive(Vec x) {
  x = vmax(x, splat(-87.f));
  const Vec shifted = x * 1.44269504088896341f + 12582912.f;  // 1.5 * 2^23 rounds to an integer in the low bits
  const Vec n = shifted - 12582912.f;
  const Vec r = (x - n * 0.693359375f) - n * -2.12194440e-4f;
  Vec p = splat(1.f / 5040.f);
  p = p * r + 1.f / 720.f;
  p = p * r + 1.f / 120.f;
  p = p * r + 1.f / 24.f;
  p = p * r + 1.f / 6.f;
  p = p * r + 0.5f;
  p = p * r + 1.f;
  p = p * r + 1.f;
  const VecI exponent = (__builtin_convertvector(n, VecI) + 127) << 23;
  Vec scale;
  std::memcpy(&scale, &exponent, sizeof(scale));
  return p * scale;
}

// What one step of a dot product multiplies: one float32, or one pair of bfloat16 held in 32 bits.
struct FloatStep {
  using Element = float;
  static constexpr int64_t kDepth = 1;
  static inline Vec multiply_add(float a, const float* b, Vec sum) { return load(b) * a + sum; }
};

#if defined(__AVX512BF16__)
struct PairStep {
  using Element = BFloat16;
  static constexpr int64_t kDepth = 2;
  static inline Vec multiply_add(float pair, const float* b, Vec sum) {
    int32_t bits;
    std::memcpy(&bits, &pair, sizeof(bits));
    const __m512i rows = _mm512_set1_epi32(bits);
    const __m512i columns = _mm512_loadu_si512(b);
    return (Vec)_mm512_dpbf16_ps((__m512)sum, (__m512bh)rows, (__m512bh)columns);
  }
};
#endif

// C[rows, columns] (+)= A[rows, steps] B[steps, columns]. A and B hold one step per float; columns
// is a multiple of kLanes.
template <class Step, int kRows, int kVecs>
inline void tile(const float* a, int64_t a_row, const float* b, int64_t b_row, float* c, int64_t c_row, int64_t steps,
                 bool accumulate) {
  Vec sum[kRows][kVecs];
  for (int r = 0; r < kRows; ++r)
    for (int v = 0; v < kVecs; ++v) sum[r][v] = accumulate ? load(c + r * c_row + v * kLanes) : Vec{};
  for (int64_t s = 0; s < steps; ++s) {
    for (int r = 0; r < kRows; ++r) {
      const float x = a[r * a_row + s];
      for (int v = 0; v < kVecs; ++v) sum[r][v] = Step::multiply_add(x, b + s * b_row + v * kLanes, sum[r][v]);
    }
  }
  for (int r = 0; r < kRows; ++r)
    for (int v = 0; v < kVecs; ++v) store(c + r * c_row + v * kLanes, sum[r][v]);
}

template <class Step, int kVecs>
inline void column_strip(const float* a, int64_t a_row, const float* b, int64_t b_row, float* c, int64_t c_row, int64_t rows,
                         int64_t steps, bool accumulate) {
  constexpr int kRows = kLanes == 16 ? 6 : 4;
  int64_t r = 0;
  for (; r + kRows <= rows; r += kRows)
    tile<Step, kRows, kVecs>(a + r * a_row, a_row, b, b_row, c + r * c_row, c_row, steps, accumulate);
  for (; r + 2 <= rows; r += 2)
    tile<Step, 2, kVecs>(a + r * a_row, a_row, b, b_row, c + r * c_row, c_row, steps, accumulate);
  for (; r < rows; ++r) tile<Step, 1, kVecs>(a + r * a_row, a_row, b, b_row, c + r * c_row, c_row, steps, accumulate);
}

template <class Step>
inline void matmul(const float* a, int64_t a_row, const float* b, int64_t b_row, float* c, int64_t c_row, int64_t rows,
                   int64_t columns, int64_t steps, bool accumulate) {
  constexpr int kVecs = kLanes == 16 ? 4 : 2;
  int64_t n = 0;
  for (; n + kVecs * kLanes <= columns; n += kVecs * kLanes)
    column_strip<Step, kVecs>(a, a_row, b + n, b_row, c + n, c_row, rows, steps, accumulate);
  for (; n + 2 * kLanes <= columns; n += 2 * kLanes)
    column_strip<Step, 2>(a, a_row, b + n, b_row, c + n, c_row, rows, steps, accumulate);
  for (; n < columns; n += kLanes)
    column_strip<Step, 1>(a, a_row, b + n, b_row, c + n, c_row, rows, steps, accumulate);
}

inline int64_t round_up(int64_t value, int64_t multiple) { return (value + multiple - 1) / multiple * multiple; }

// Copies rows of `count` elements into rows of `steps` steps, zero-filled: float32 per step, or
// bfloat16 pairs.
template <class Step, class T>
inline void pack_rows(const T* in, int64_t in_row, int64_t rows, int64_t count, float* out, int64_t out_row) {
  for (int64_t r = 0; r < rows; ++r) {
    const T* source = in + r * in_row;
    float* target = out + r * out_row;
    if constexpr (Step::kDepth == 2) {
      std::memset(target, 0, out_row * sizeof(float));
      std::memcpy(target, source, count * sizeof(T));
    } else {
      for (int64_t i = 0; i < count; ++i) target[i] = widen(source[i]);
    }
  }
}

// out[step][row] from rows of steps; `columns` >= rows are zero-filled.
inline void transpose(const float* in, int64_t in_row, int64_t rows, int64_t steps, float* out, int64_t columns) {
#if defined(__AVX512F__)
  int64_t r = 0;
  for (; r + 16 <= rows; r += 16) {
    for (int64_t s = 0; s < steps; ++s) {
      const __m512i offsets = _mm512_mullo_epi32(
          _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0), _mm512_set1_epi32(static_cast<int>(in_row)));
      _mm512_storeu_ps(out + s * columns + r, _mm512_i32gather_ps(offsets, in + r * in_row + s, 4));
    }
  }
#else
  int64_t r = 0;
#endif
  for (; r < rows; ++r)
    for (int64_t s = 0; s < steps; ++s) out[s * columns + r] = in[r * in_row + s];
  for (int64_t s = 0; s < steps; ++s)
    for (int64_t c = rows; c < columns; ++c) out[s * columns + c] = 0.f;
}

// Values as the right-hand side of P V: [keys][dim] float32, or [keys / 2][dim] pairs of two
// neighbouring keys.
template <class Step, class T>
inline void pack_values(const T* in, int64_t in_row, int64_t keys, int64_t dim, float* out, int64_t columns) {
  if constexpr (Step::kDepth == 2) {
    for (int64_t k = 0; k < keys; k += 2) {
      uint16_t* target = reinterpret_cast<uint16_t*>(out + (k / 2) * columns);
      const T* first = in + k * in_row;
      const T* second = k + 1 < keys ? first + in_row : nullptr;
      for (int64_t d = 0; d < dim; ++d) {
        target[2 * d] = first[d].bits;
        target[2 * d + 1] = second ? second[d].bits : 0;
      }
      for (int64_t d = 2 * dim; d < 2 * columns; ++d) target[d] = 0;
    }
  } else {
    for (int64_t k = 0; k < keys; ++k) {
      float* target = out + k * columns;
      for (int64_t d = 0; d < dim; ++d) target[d] = widen(in[k * in_row + d]);
      for (int64_t d = dim; d < columns; ++d) target[d] = 0.f;
    }
  }
}

template <class T>
struct Rows {  // a [T, H, D] tensor whose last dimension is contiguous; strides count elements
  T* data;
  int64_t token_stride, head_stride;
  T* at(int64_t token, int64_t head) const { return data + token * token_stride + head * head_stride; }
};

template <class T>
struct Problem {
  Rows<const T> q, k, v;
  Rows<T> out;
  int64_t heads, kv_heads, dim, v_dim;
  bool causal;
  int64_t window;
  float scale;

  // Keys visible to query i of a sequence: [first_key(i), last_key(i, length)).
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
  int64_t start, length, first_query;
  int64_t head;
};

struct Scratch {
  std::vector<float> storage;
  float *queries, *keys, *keys_t, *values, *scores, *weights, *sums;

  void reserve(int64_t dim_steps, int64_t v_columns) {
    const int64_t sizes[] = {kQueryBlock * dim_steps, kKeyBlock * dim_steps, dim_steps * kKeyBlock, kKeyBlock * v_columns,
                             kQueryBlock * kKeyBlock, kQueryBlock * kKeyBlock, kQueryBlock * v_columns};
    int64_t total = 16;
    for (const int64_t size : sizes) total += round_up(size, 16);
    if (static_cast<int64_t>(storage.size()) < total) storage.resize(total);
    float* next = reinterpret_cast<float*>((reinterpret_cast<uintptr_t>(storage.data()) + 63) / 64 * 64);
    float** const slots[] = {&queries, &keys, &keys_t, &values, &scores, &weights, &sums};
    for (int i = 0; i < 7; ++i) {
      *slots[i] = next;
      next += round_up(sizes[i], 16);
    }
  }
};

// Softmax numerators of one row of scores, in place of P; returns nothing but updates the running
// maximum and sum.
template <class Step>
inline float softmax_row(float* scores, int64_t columns, int64_t visible_from, int64_t visible_to, float scale, float* weights,
                         float* row_max, float* row_sum) {
  for (int64_t c = 0; c < visible_from; ++c) scores[c] = kMasked;
  for (int64_t c = std::max<int64_t>(visible_to, visible_from); c < columns; ++c) scores[c] = kMasked;
  Vec top = splat(kMasked);
  for (int64_t c = 0; c < columns; c += kLanes) top = vmax(top, load(scores + c));
  const float block_max = reduce_max(top) * scale;
  const float new_max = std::max(*row_max, visible_from < visible_to ? block_max : kMasked);
  const float correction = exp_nonpositive(splat(*row_max - new_max))[0];
  Vec total{};
  for (int64_t c = 0; c < columns; c += kLanes) {
    const Vec p = exp_nonpositive(load(scores + c) * scale - new_max);
    total += p;
    if constexpr (Step::kDepth == 2) {
#if defined(__AVX512BF16__)
      const __m256bh half = _mm512_cvtneps_pbh((__m512)p);
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(reinterpret_cast<uint16_t*>(weights) + c), (__m256i)half);
#endif
    } else {
      store(weights + c, p);
    }
  }
  *row_sum = *row_sum * correction + reduce_add(total);
  *row_max = new_max;
  return correction;
}

template <class Step, class T>
void attend_block(const Problem<T>& p, const WorkItem& item, Scratch& scratch) {
  const int64_t rows = std::min(kQueryBlock, item.length - item.first_query);
  const int64_t kv_head = item.head / (p.heads / p.kv_heads);
  const int64_t steps = (p.dim + Step::kDepth - 1) / Step::kDepth;
  const int64_t v_columns = round_up(p.v_dim, kLanes);
  float row_max[kQueryBlock], row_sum[kQueryBlock];
  std::fill_n(row_max, rows, kMasked);
  std::fill_n(row_sum, rows, 0.f);
  pack_rows<Step>(p.q.at(item.start + item.first_query, item.head), p.q.token_stride, rows, p.dim, scratch.queries, steps);

  const int64_t last_query = item.first_query + rows - 1;
  const int64_t key_begin = p.first_key(item.first_query);
  const int64_t key_end = p.end_key(last_query, item.length);
  for (int64_t k0 = key_begin; k0 < key_end; k0 += kKeyBlock) {
    const int64_t keys = std::min(kKeyBlock, key_end - k0);
    const int64_t columns = round_up(keys, kLanes);
    pack_rows<Step>(p.k.at(item.start + k0, kv_head), p.k.token_stride, keys, p.dim, scratch.keys, steps);
    transpose(scratch.keys, steps, keys, steps, scratch.keys_t, columns);
    matmul<Step>(scratch.queries, steps, scratch.keys_t, columns, scratch.scores, columns, rows, columns, steps, false);
    for (int64_t r = 0; r < rows; ++r) {
      const int64_t query = item.first_query + r;
      const int64_t from = std::clamp<int64_t>(p.first_key(query) - k0, 0, keys);
      const int64_t to = std::clamp<int64_t>(p.end_key(query, item.length) - k0, 0, keys);
      float* const weights = scratch.weights + r * columns / Step::kDepth;
      const float correction =
          softmax_row<Step>(scratch.scores + r * columns, columns, from, to, p.scale, weights, row_max + r, row_sum + r);
      if (k0 > key_begin) {
        float* const sums = scratch.sums + r * v_columns;
        for (int64_t d = 0; d < v_columns; d += kLanes) store(sums + d, load(sums + d) * correction);
      }
    }
    pack_values<Step>(p.v.at(item.start + k0, kv_head), p.v.token_stride, keys, p.v_dim, scratch.values, v_columns);
    const int64_t value_steps = (keys + Step::kDepth - 1) / Step::kDepth;
    matmul<Step>(scratch.weights, columns / Step::kDepth, scratch.values, v_columns, scratch.sums, v_columns, rows, v_columns,
                 value_steps, k0 > key_begin);
  }
  for (int64_t r = 0; r < rows; ++r) {
    T* const out = p.out.at(item.start + item.first_query + r, item.head);
    const float inverse = 1.f / row_sum[r];
    for (int64_t d = 0; d < p.v_dim; ++d) narrow(scratch.sums[r * v_columns + d] * inverse, out + d);
  }
}

template <class Step, class T>
void attend(const Problem<T>& p, const int32_t* cu_seqlens, int64_t num_sequences, int64_t num_tokens) {
  const int64_t used = cu_seqlens[num_sequences];
  std::memset(p.out.at(used, 0), 0, (num_tokens - used) * p.out.token_stride * sizeof(T));
  std::vector<WorkItem> items;
  for (int64_t b = 0; b < num_sequences; ++b) {
    const int64_t start = cu_seqlens[b], length = cu_seqlens[b + 1] - start;
    for (int64_t head = 0; head < p.heads; ++head)
      for (int64_t first = 0; first < length; first += kQueryBlock) items.push_back({start, length, first, head});
  }
  const int64_t steps = (p.dim + Step::kDepth - 1) / Step::kDepth, v_columns = round_up(p.v_dim, kLanes);
#pragma omp parallel
  {
    thread_local Scratch scratch;
    scratch.reserve(steps, v_columns);
#pragma omp for schedule(dynamic, 8)
    for (int64_t i = 0; i < static_cast<int64_t>(items.size()); ++i) attend_block<Step, T>(p, items[i], scratch);
  }
}

struct TensorView {
  void* data;
  int64_t sizes[3], strides[3];
};

bool read_view(AtenTensorHandle tensor, TensorView* view) {
  int64_t *sizes, *strides;
  if (aoti_torch_get_data_ptr(tensor, &view->data) || aoti_torch_get_sizes(tensor, &sizes) ||
      aoti_torch_get_strides(tensor, &strides))
    return false;
  std::copy_n(sizes, 3, view->sizes);
  std::copy_n(strides, 3, view->strides);
  return view->strides[2] == 1 || view->sizes[2] == 1;
}

template <class T>
Rows<T> rows_of(const TensorView& view) {
  return {static_cast<T*>(view.data), view.strides[0], view.strides[1]};
}

template <class T>
void run(const TensorView& q, const TensorView& k, const TensorView& v, const TensorView& out, const int32_t* cu_seqlens,
         int64_t num_sequences, bool causal, int64_t window, double scale) {
#if defined(__AVX512BF16__)
  using Step = std::conditional_t<std::is_same_v<T, BFloat16>, PairStep, FloatStep>;
#else
  using Step = FloatStep;
#endif
  const Problem<T> problem{rows_of<const T>(q), rows_of<const T>(k), rows_of<const T>(v), rows_of<T>(out), q.sizes[1],
                           k.sizes[1],          q.sizes[2],          v.sizes[2],          causal,          window,
                           static_cast<float>(scale)};
  attend<Step, T>(problem, cu_seqlens, num_sequences, q.sizes[0]);
}

}  // namespace

// q (T, H, D), k and v (T, Hkv, D), float32 or bfloat16; cu_seqlens (B + 1,) int32, contiguous.
// Tokens behind cu_seqlens[B] belong to no sequence and yield zeros.
// window < 0: none; else keys with |i - j| <= window, or 0 <= i - j < window when causal. Returns a
// new (T, H, Dv) tensor.
INFINITY_EXPORT AOTITorchError INFINITY_JOIN(aoti_torch_cpu_varlen_attention, INFINITY_DIGEST)(
    AtenTensorHandle q, AtenTensorHandle k, AtenTensorHandle v, AtenTensorHandle cu_seqlens, int32_t causal, int64_t window,
    double scale, AtenTensorHandle* ret) {
  TensorView qv, kv, vv, ov;
  void* bounds;
  int64_t num_bounds;
  int32_t dtype;
  if (!read_view(q, &qv) || !read_view(k, &kv) || !read_view(v, &vv) || aoti_torch_get_dtype(q, &dtype) ||
      aoti_torch_get_data_ptr(cu_seqlens, &bounds) || aoti_torch_get_size(cu_seqlens, 0, &num_bounds))
    return AOTI_TORCH_FAILURE;
  const bool is_float = dtype == aoti_torch_dtype_float32();
  if ((!is_float && dtype != aoti_torch_dtype_bfloat16()) || qv.sizes[1] % kv.sizes[1] != 0) return AOTI_TORCH_FAILURE;
  const int64_t sizes[] = {qv.sizes[0], qv.sizes[1], vv.sizes[2]}, strides[] = {sizes[1] * sizes[2], sizes[2], 1};
  if (aoti_torch_empty_strided(3, sizes, strides, dtype, aoti_torch_device_type_cpu(), 0, ret) || !read_view(*ret, &ov))
    return AOTI_TORCH_FAILURE;
  const auto* cu = static_cast<const int32_t*>(bounds);
  (is_float ? run<float> : run<BFloat16>)(qv, kv, vv, ov, cu, num_bounds - 1, causal != 0, window, scale);
  return AOTI_TORCH_SUCCESS;
}
