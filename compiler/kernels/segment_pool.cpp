// Pooling of packed token vectors, one row per sequence, accumulated in float32.
//
// Owns `infinity::segment_pool`. The modes follow sentence-transformers' Pooling module: mean,
// maximum, mean scaled by the square root of the length, the position-weighted mean (weights 1, 2,
// ... S; Muennighoff 2022), first and last token.

#include "kernel_common.h"

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
void pool_sequence(const T* tokens, int64_t token_stride, int64_t length, int64_t dim, Mode mode, float* out) {
  const bool copies = mode == kMax || mode == kFirst || mode == kLast;
  const T* seed = tokens + (mode == kLast ? length - 1 : 0) * token_stride;
  for (int64_t d = 0; d < dim; ++d) out[d] = copies && length > 0 ? widen(seed[d]) : 0.f;
  if (mode == kFirst || mode == kLast) return;
  for (int64_t t = 0; t < length; ++t) {
    const T* row = tokens + t * token_stride;
    const float weight = mode == kWeightedMean ? static_cast<float>(t + 1) : 1.f;
    if (mode == kMax)
      for (int64_t d = 0; d < dim; ++d) out[d] = std::max(out[d], widen(row[d]));
    else
      for (int64_t d = 0; d < dim; ++d) out[d] += widen(row[d]) * weight;
  }
  if (mode == kMax || length == 0) return;
  const float scale = divisor(mode, length);
  for (int64_t d = 0; d < dim; ++d) out[d] /= scale;
}

template <class T>
void pool(const void* tokens, int64_t token_stride, int64_t dim, const int32_t* cu_seqlens, int64_t num_sequences, Mode mode,
          float* out) {
#pragma omp parallel for schedule(dynamic, 1)
  for (int64_t b = 0; b < num_sequences; ++b)
    pool_sequence(static_cast<const T*>(tokens) + cu_seqlens[b] * token_stride, token_stride, cu_seqlens[b + 1] - cu_seqlens[b],
                  dim, mode, out + b * dim);
}

}  // namespace

// hidden (T, D) float32 or bfloat16 with contiguous rows; cu_seqlens (B + 1,) int32. Returns a new
// (B, D) float32 tensor; an empty sequence yields zeros.
INFINITY_EXPORT AOTITorchError INFINITY_JOIN(aoti_torch_cpu_segment_pool, INFINITY_DIGEST)(
    AtenTensorHandle hidden, AtenTensorHandle cu_seqlens, int64_t mode, AtenTensorHandle* ret) {
  int64_t *sizes, *strides, num_bounds;
  int32_t dtype;
  void *tokens, *bounds, *out;
  if (aoti_torch_get_sizes(hidden, &sizes) || aoti_torch_get_strides(hidden, &strides) || aoti_torch_get_dtype(hidden, &dtype) ||
      aoti_torch_get_data_ptr(hidden, &tokens) || aoti_torch_get_data_ptr(cu_seqlens, &bounds) ||
      aoti_torch_get_size(cu_seqlens, 0, &num_bounds))
    return AOTI_TORCH_FAILURE;
  const bool is_float = dtype == aoti_torch_dtype_float32();
  if ((!is_float && dtype != aoti_torch_dtype_bfloat16()) || strides[1] != 1 || mode < kMean || mode > kLast)
    return AOTI_TORCH_FAILURE;
  const int64_t out_sizes[] = {num_bounds - 1, sizes[1]}, out_strides[] = {sizes[1], 1};
  if (aoti_torch_empty_strided(2, out_sizes, out_strides, aoti_torch_dtype_float32(), aoti_torch_device_type_cpu(), 0, ret) ||
      aoti_torch_get_data_ptr(*ret, &out))
    return AOTI_TORCH_FAILURE;
  (is_float ? pool<float> : pool<BFloat16>)(tokens, strides[0], sizes[1], static_cast<const int32_t*>(bounds), num_bounds - 1,
                                            static_cast<Mode>(mode), static_cast<float*>(out));
  return AOTI_TORCH_SUCCESS;
}
