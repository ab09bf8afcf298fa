// Tensors as the kernels receive them over the C interface of torch's AOTInductor shim, and checks
// of what they hold.
//
// The library depends on no C++ class of torch. Whatever does not fit is refused before anything is
// computed.
#pragma once

#include "kernel_common.h"

#include <algorithm>

namespace infinity {

constexpr int kMaxRank = 3;

struct TensorView {
  void* data = nullptr;
  int32_t dtype = -1;
  int64_t sizes[kMaxRank] = {}, strides[kMaxRank] = {};

  template <class T>
  T* as() const {
    return static_cast<T*>(data);
  }
};

// Reads a tensor of `rank` dimensions, however its elements lie.
inline bool read_strided(AtenTensorHandle tensor, int64_t rank, TensorView* view) {
  int64_t *sizes, *strides, dims;
  if (aoti_torch_get_dim(tensor, &dims) || dims != rank || aoti_torch_get_data_ptr(tensor, &view->data) ||
      aoti_torch_get_dtype(tensor, &view->dtype) || aoti_torch_get_sizes(tensor, &sizes) ||
      aoti_torch_get_strides(tensor, &strides))
    return false;
  std::copy_n(sizes, rank, view->sizes);
  std::copy_n(strides, rank, view->strides);
  return true;
}

// The same of one whose last dimension is contiguous.
inline bool read_view(AtenTensorHandle tensor, int64_t rank, TensorView* view) {
  return read_strided(tensor, rank, view) && (view->strides[rank - 1] == 1 || view->sizes[rank - 1] <= 1);
}

// And of an optional tensor: a null pointer for None, which leaves `view` without data.
inline bool read_optional(AtenTensorHandle* tensor, int64_t rank, TensorView* view) {
  return tensor == nullptr || read_view(*tensor, rank, view);
}

inline bool is_float32(const TensorView& view) { return view.dtype == aoti_torch_dtype_float32(); }
inline bool is_supported(const TensorView& view) {
  return is_float32(view) || view.dtype == aoti_torch_dtype_bfloat16();
}

// Bounds of packed sequences: int32, from 0, never falling, within the tokens there are.
inline bool are_bounds(const TensorView& view, int64_t num_tokens) {
  if (view.dtype != aoti_torch_dtype_int32() || view.sizes[0] < 1) return false;
  const int32_t* bounds = view.as<const int32_t>();
  return bounds[0] == 0 && std::is_sorted(bounds, bounds + view.sizes[0]) && bounds[view.sizes[0] - 1] <= num_tokens;
}

// A new contiguous CPU tensor; on failure there is none.
inline bool make_output(int64_t rank, const int64_t* sizes, int32_t dtype, AtenTensorHandle* ret, TensorView* view) {
  int64_t strides[kMaxRank] = {1, 1, 1};
  for (int64_t d = rank - 2; d >= 0; --d) strides[d] = strides[d + 1] * sizes[d + 1];
  return !aoti_torch_empty_strided(rank, sizes, strides, dtype, aoti_torch_device_type_cpu(), 0, ret) &&
         read_view(*ret, rank, view);
}

// Runs a kernel's body, which returns whether it succeeded. No exception may cross the C interface.
template <class Body>
AOTITorchError guarded(const Body& body) noexcept {
  try {
    return body() ? AOTI_TORCH_SUCCESS : AOTI_TORCH_FAILURE;
  } catch (...) {
    return AOTI_TORCH_FAILURE;
  }
}

// Runs what fills an output; without memory for its scratch the output is given back.
template <class Body>
bool fill_output(AtenTensorHandle* ret, const Body& body) {
  if (body()) return true;
  aoti_torch_delete_tensor_object(*ret);
  *ret = nullptr;
  return false;
}

template <class T>
struct Rows {  // a [T, H, D] tensor whose last dimension is contiguous; strides count elements
  T* data;
  int64_t token_stride, head_stride;
  T* at(int64_t token, int64_t head) const { return data + token * token_stride + head * head_stride; }
};

template <class T>
Rows<T> rows_of(const TensorView& view) {
  return {view.as<T>(), view.strides[0], view.strides[1]};
}

// Rows of the packed tokens from one token on: one after the other, or as a table says.
struct TokenRows {
  int64_t start;
  const int64_t* table;  // null: token t lies in row t
  int64_t operator[](int64_t i) const { return table ? table[start + i] : start + i; }
  TokenRows from(int64_t i) const { return {start + i, table}; }
};

}  // namespace infinity
