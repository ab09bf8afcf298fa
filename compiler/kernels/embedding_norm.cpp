// Sums of rows of up to three tables, normalised in the same pass.
//
// Owns `infinity::embedding_norm`.

#include "norm_rows.h"

namespace {

using namespace infinity;

constexpr int64_t kRowsAhead = 8;  // fetched early: the rows of a large table lie in no near cache
constexpr int64_t kLineBytes = 64;

// A table (R, D) and the row of each token, (N,) int64 at any distance, 0 for one row of all.
struct Lookup {
  TensorView table, ids;

  bool is_valid(int64_t num_tokens, int64_t width, int32_t dtype) const {
    return table.dtype == dtype && ids.dtype == aoti_torch_dtype_int64() && ids.sizes[0] == num_tokens &&
           table.sizes[1] == width && are_rows_of_table();
  }
  int64_t row_of(int64_t token) const { return ids.as<const int64_t>()[token * ids.strides[0]]; }
  template <class T>
  const T* row(int64_t token) const {
    return table.as<const T>() + row_of(token) * table.strides[0];
  }

 private:
  bool are_rows_of_table() const {
    for (int64_t token = 0; token < ids.sizes[0]; ++token)
      if (row_of(token) < 0 || row_of(token) >= table.sizes[0]) return false;
    return true;
  }
};

struct Arguments {
  Lookup lookups[NormTerms<float>::kMost];
  int count = 0;
  TensorView weight, bias;

  // The next table, which may be absent.
  bool read(AtenTensorHandle* table, AtenTensorHandle* ids) {
    if (table == nullptr) return ids == nullptr;
    Lookup& lookup = lookups[count++];
    return ids != nullptr && read_view(*table, 2, &lookup.table) && read_strided(*ids, 1, &lookup.ids);
  }
  bool are_valid() const {
    const TensorView& first = lookups[0].table;
    return is_supported(first) && are_norm_columns(weight, bias, first.sizes[1]) &&
           std::all_of(lookups, lookups + count, [&](const Lookup& lookup) {
             return lookup.is_valid(lookups[0].ids.sizes[0], first.sizes[1], first.dtype);
           });
  }
};

template <int kTables, class T>
bool normalise(const Arguments& a, float epsilon, T* out) {
  const int64_t num_tokens = a.lookups[0].ids.sizes[0], width = a.weight.sizes[0];
  const int64_t row_bytes = width * static_cast<int64_t>(sizeof(T));
  return normalise_rows<kTables>(num_tokens, a.weight, a.bias, epsilon, out, [&, num_tokens, row_bytes](int64_t token) {
    const auto* const coming = reinterpret_cast<const char*>(a.lookups[0].row<T>(std::min(token + kRowsAhead, num_tokens - 1)));
    for (int64_t byte = 0; byte < row_bytes; byte += kLineBytes) _mm_prefetch(coming + byte, _MM_HINT_T1);
    NormTerms<T> terms;
    for (int t = 0; t < kTables; ++t) terms.rows[t] = a.lookups[t].row<T>(token);
    return terms;
  });
}

template <class T>
bool normalise_any(const Arguments& a, float epsilon, T* out) {
  switch (a.count) {
    case 1: return normalise<1>(a, epsilon, out);
    case 2: return normalise<2>(a, epsilon, out);
    default: return normalise<3>(a, epsilon, out);
  }
}

}  // namespace

// table (R, D) float32 or bfloat16, ids (N,) int64 within its rows; second and third the same with
// tables of their own, or null; weight and bias (D,) float32 or bfloat16, the bias may be null. Rows
// are contiguous. Returns a new (N, D) tensor of the tables' dtype.
INFINITY_EXPORT AOTITorchError INFINITY_JOIN(aoti_torch_cpu_embedding_norm, INFINITY_DIGEST)(
    AtenTensorHandle table, AtenTensorHandle ids, AtenTensorHandle* second_table, AtenTensorHandle* second_ids,
    AtenTensorHandle* third_table, AtenTensorHandle* third_ids, AtenTensorHandle weight, AtenTensorHandle* bias,
    double epsilon, AtenTensorHandle* ret) {
  return guarded([&] {
    Arguments a;
    TensorView out;
    if (!a.read(&table, &ids) || !a.read(second_table, second_ids) || !a.read(third_table, third_ids) ||
        !read_view(weight, 1, &a.weight) || !read_optional(bias, 1, &a.bias) || !a.are_valid())
      return false;
    const TensorView& first = a.lookups[0].table;
    const int64_t sizes[] = {a.lookups[0].ids.sizes[0], first.sizes[1]};
    if (!make_output(2, sizes, first.dtype, ret, &out)) return false;
    return fill_output(ret, [&] {
      return is_float32(first) ? normalise_any(a, static_cast<float>(epsilon), out.as<float>())
                               : normalise_any(a, static_cast<float>(epsilon), out.as<BFloat16>());
    });
  });
}
