// Linear layers by products of bfloat16 numbers: multiplied and finished in one pass.
//
// Owns `infinity::bf16_linear`. Work is divided into blocks of rows and, where there are few rows, of
// columns. A sum runs over a whole row in one order, so that numbers do not depend on how work is
// divided.

#if defined(__AVX512BF16__)

#include "bf16_matrix.h"
#include "scratch.h"
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

// What one thread works with.
class Worker {
 public:
  bool reserve(Scratch& scratch, const Grid& grid, const Problem& p) {
#if defined(__AMX_BF16__)
    const int64_t floats = round_up(grid.block_rows, kMatrixBlock) * p.layer.padded_depth() / 2;
    if (!may_use_tiles()) return true;
    if (!scratch.reserve(kSumsOfBlock + floats, 2)) return false;
    sums_ = scratch.take(kSumsOfBlock);
    tiles_ = reinterpret_cast<BFloat16*>(scratch.take(floats));
#endif
    return true;
  }

  template <Activation kActivation>
  void run(const Problem& p, const Part& part) const {
    const SourceRows rows = p.rows.from(part.first_row);
    const RowResults results = p.results.from(part.first_row);
    const int64_t num_rows = part.end_row - part.first_row;
    const Panels panels{part.first_panel, part.end_panel};
#if defined(__AMX_BF16__)
    if (may_use_tiles()) {
      pack_tiles(rows, num_rows, p.layer.depth, tiles_);
      return multiply_on_matrix<kActivation>(tiles_, num_rows, p.layer, panels, results, sums_);
    }
#endif
    multiply_on_vectors<kActivation>(rows, num_rows, p.layer, panels, results);
  }

 private:
  float* sums_ = nullptr;
  BFloat16* tiles_ = nullptr;
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
    Worker worker;
    const bool ready = worker.reserve(scratch, grid, p);
    if (!ready) complete = false;
    shares.work(omp_get_thread_num(), [&](int64_t i) {
      if (ready) worker.run<kActivation>(p, grid.part(i));
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
