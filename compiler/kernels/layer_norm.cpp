// Normalisation of rows, of one tensor or of the sum of two.
//
// Owns `infinity::layer_norm`.

#include "norm_rows.h"

namespace {

using namespace infinity;

struct Arguments {
  TensorView x, other, weight, bias;

  bool are_valid() const {
    return is_supported(x) && are_norm_columns(weight, bias, x.sizes[1]) &&
           (other.data == nullptr ||
            (other.dtype == x.dtype && other.sizes[0] == x.sizes[0] && other.sizes[1] == x.sizes[1]));
  }
};

template <class T>
bool normalise(const Arguments& a, float epsilon, T* out) {
  const T *const x = a.x.as<const T>(), *const other = a.other.as<const T>();
  const int64_t stride = a.x.strides[0], other_stride = a.other.strides[0];
  const auto one = [=](int64_t row) { return NormTerms<T>{{x + row * stride}}; };
  const auto two = [=](int64_t row) { return NormTerms<T>{{x + row * stride, other + row * other_stride}}; };
  return other ? normalise_rows<2>(a.x.sizes[0], a.weight, a.bias, epsilon, out, two)
               : normalise_rows<1>(a.x.sizes[0], a.weight, a.bias, epsilon, out, one);
}

}  // namespace

// x (N, D) float32 or bfloat16; other the same or null, added before; weight and bias (D,) float32 or
// bfloat16, the bias may be null. Rows are contiguous. Returns a new (N, D) tensor of x's dtype.
INFINITY_EXPORT AOTITorchError INFINITY_JOIN(aoti_torch_cpu_layer_norm, INFINITY_DIGEST)(
    AtenTensorHandle x, AtenTensorHandle* other, AtenTensorHandle weight, AtenTensorHandle* bias, double epsilon,
    AtenTensorHandle* ret) {
  return guarded([&] {
    Arguments a;
    TensorView out;
    if (!read_view(x, 2, &a.x) || !read_optional(other, 2, &a.other) || !read_view(weight, 1, &a.weight) ||
        !read_optional(bias, 1, &a.bias) || !a.are_valid() || !make_output(2, a.x.sizes, a.x.dtype, ret, &out))
      return false;
    return fill_output(ret, [&] {
      return is_float32(a.x) ? normalise(a, static_cast<float>(epsilon), out.as<float>())
                             : normalise(a, static_cast<float>(epsilon), out.as<BFloat16>());
    });
  });
}
