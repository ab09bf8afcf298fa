// Linear layers by products of bfloat16 numbers: multiplied and finished in one pass.
//
// Owns `infinity::bf16_linear`. Work is divided into blocks of rows and, where there are few rows, of
// columns. A sum runs over a whole row in one order, so that numbers do not depend on how work is
// divided.

#if defined(__AVX512BF16__)

#include "bf16_worker.h"
#include "shares.h"
#include "tensor_view.h"

#include <omp.h>

#include <algorithm>
#include <atomic>

namespace {

using namespace infinity;

struct Problem {
  SourceRows rows;
  int64_t num_rows;
  Layer layer;
  RowResults results;
};

template <Activation kActivation>
bool multiply_all(const Problem& p) {
  if (p.num_rows == 0) return true;
  const int64_t threads = omp_get_max_threads();
  const Grid grid = divide_rows(p.num_rows, p.layer.panels(), block_rows(p.layer.depth), threads);
  Shares shares = Shares::of_equal_counts(grid.items(), threads);
  std::atomic<bool> complete{true};
#pragma omp parallel
  {
    thread_local Scratch scratch;
    LayerWorker worker;
    const bool ready = worker.reserve(scratch, grid.block_rows, p.layer.depth);
    if (!ready) complete = false;
    shares.work(omp_get_thread_num(), [&](int64_t i) {
      if (!ready) return;
      const Part part = grid.part(i);
      worker.multiply<kActivation>(p.rows.from(part.first_row), part.end_row - part.first_row, p.layer,
                                   {part.first_panel, part.end_panel}, p.results.from(part.first_row));
    });
  }
  return complete;
}

struct Arguments {
  TensorView x, weights, bias, residual;
  int64_t columns;

  bool are_valid() const {
    return x.dtype == aoti_torch_dtype_bfloat16() && is_layer(weights, bias, x.sizes[1], columns) &&
           is_residual(residual, x.sizes[0], columns);
  }
};

}  // namespace

// x (N, K) bfloat16, K even; weights bfloat16, packed as compiler/bf16/weights.py says; columns: M;
// bias (M,) float32 or null; residual (N, M) bfloat16 or null, added behind the activation, see
// activation.h. Returns a new (N, M) bfloat16 tensor.
INFINITY_EXPORT AOTITorchError INFINITY_JOIN(aoti_torch_cpu_bf16_linear, INFINITY_DIGEST)(
    AtenTensorHandle x, AtenTensorHandle weights, int64_t columns, AtenTensorHandle* bias, AtenTensorHandle* residual,
    int64_t activation, AtenTensorHandle* ret) {
  return guarded([&] {
    Arguments a{{}, {}, {}, {}, columns};
    TensorView out;
    if (!read_view(x, 2, &a.x) || !read_view(weights, 1, &a.weights) || !read_optional(bias, 1, &a.bias) ||
        !read_optional(residual, 2, &a.residual) || !a.are_valid() || !is_activation(activation))
      return false;
    const int64_t sizes[] = {a.x.sizes[0], columns};
    if (!make_output(2, sizes, aoti_torch_dtype_bfloat16(), ret, &out)) return false;
    const Problem problem{rows_of_matrix(a.x),
                          sizes[0],
                          {a.weights.as<const BFloat16>(), a.bias.as<const float>(), a.x.sizes[1], columns},
                          {out.as<BFloat16>(), columns, rows_of_matrix(a.residual)}};
    return fill_output(ret, [&] {
      bool done = false;
      with_activation(static_cast<Activation>(activation),
                      [&](auto kind) { done = multiply_all<decltype(kind)::value>(problem); });
      return done;
    });
  });
}

#endif
