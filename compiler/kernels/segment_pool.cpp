// Pooling of packed token vectors, one row per sequence, accumulated in float32.
//
// Owns `infinity::segment_pool`. The modes follow sentence-transformers' Pooling module: mean,
// maximum, mean scaled by the square root of the length, the position-weighted mean (weights 1, 2,
// ... S; Muennighoff 2022), first and last token.

#include "tensor_view.h"

#include <algorithm>
#include <cmath>

namespace {

using namespace infinity;

enum Mode : int64_t { kMean = 0, kMax = 1, kMeanSqrtLen = 2, kWeightedMean = 3, kFirst = 4, kLast = 5 };

inline float divisor(Mode mode, int64_t length) {
  if (mode == kMean) return static_cast<float>(length);
  if (mode == kMeanSqrtLen) return std::sqrt(static_cast<float>(length));
  return static_cast<float>(length) * static_cast<float>(length + 1) / 2.f;
}

template <class T>
void pool_sequence(const T* hidden, int64_t stride, TokenRows tokens, int64_t length, int64_t dim, Mode mode, float* out) {
  const bool copies = mode == kMax || mode == kFirst || mode == kLast;
  std::fill_n(out, dim, 0.f);
  if (length == 0) return;
  if (copies) {
    const T* const seed = hidden + tokens[mode == kLast ? length - 1 : 0] * stride;
    for (int64_t d = 0; d < dim; ++d) out[d] = widen(seed[d]);
  }
  if (mode == kFirst || mode == kLast) return;
  for (int64_t t = 0; t < length; ++t) {
    const T* const row = hidden + tokens[t] * stride;
    const float weight = mode == kWeightedMean ? static_cast<float>(t + 1) : 1.f;
    if (mode == kMax)
      for (int64_t d = 0; d < dim; ++d) out[d] = std::max(out[d], widen(row[d]));
    else
      for (int64_t d = 0; d < dim; ++d) out[d] += widen(row[d]) * weight;
  }
  if (mode == kMax) return;
  const float scale = divisor(mode, length);
  for (int64_t d = 0; d < dim; ++d) out[d] /= scale;
}

template <class T>
void pool(const TensorView& hidden, const int32_t* bounds, int64_t num_sequences, const int64_t* table, Mode mode, float* out) {
  const int64_t dim = hidden.sizes[1];
#pragma omp parallel for schedule(dynamic, 1)
  for (int64_t b = 0; b < num_sequences; ++b)
    pool_sequence(hidden.as<const T>(), hidden.strides[0], {bounds[b], table}, bounds[b + 1] - bounds[b], dim, mode,
                  out + b * dim);
}

// Whether each packed token lies in a row that there is.
bool are_rows(const TensorView& rows, int64_t num_tokens, int64_t num_stored) {
  if (rows.data == nullptr) return num_tokens <= num_stored;
  if (rows.dtype != aoti_torch_dtype_int64() || num_tokens > rows.sizes[0]) return false;
  const int64_t* table = rows.as<const int64_t>();
  return std::all_of(table, table + num_tokens, [=](int64_t row) { return row >= 0 && row < num_stored; });
}

}  // namespace

// hidden (N, D) float32 or bfloat16 with contiguous rows; cu_seqlens (B + 1,) int32 over T packed
// tokens; rows (T,) int64, the row of each token, null: token t lies in row t. Returns a new (B, D)
// float32 tensor; an empty sequence yields zeros.
INFINITY_EXPORT AOTITorchError INFINITY_JOIN(aoti_torch_cpu_segment_pool, INFINITY_DIGEST)(
    AtenTensorHandle hidden, AtenTensorHandle cu_seqlens, AtenTensorHandle* rows, int64_t mode, AtenTensorHandle* ret) {
  return guarded([&] {
    TensorView tokens, bounds, table, out;
    if (!read_view(hidden, 2, &tokens) || !read_view(cu_seqlens, 1, &bounds) || !read_optional(rows, 1, &table) ||
        !is_supported(tokens) || mode < kMean || mode > kLast || !are_bounds(bounds, INT32_MAX))
      return false;
    const auto* const cu = bounds.as<const int32_t>();
    const int64_t num_sequences = bounds.sizes[0] - 1, sizes[] = {num_sequences, tokens.sizes[1]};
    if (!are_rows(table, cu[num_sequences], tokens.sizes[0]) ||
        !make_output(2, sizes, aoti_torch_dtype_float32(), ret, &out))
      return false;
    (is_float32(tokens) ? pool<float> : pool<BFloat16>)(tokens, cu, num_sequences, table.as<const int64_t>(),
                                                        static_cast<Mode>(mode), out.as<float>());
    return true;
  });
}
