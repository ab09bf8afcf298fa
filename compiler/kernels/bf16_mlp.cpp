// Two linear layers, one behind the other, by products of bfloat16 numbers.
//
// Owns `infinity::bf16_mlp`. What the first layer gives is rounded as a tensor of its own would be, but
// stays in the caches, in the order in which the second one reads it. Each thread takes both layers of
// its rows; where there are few, columns are divided and the threads wait for one another between the
// layers. Numbers do not depend on how work is divided.

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
  Layer up, down;
  RowResults results;

  int64_t hidden() const { return up.columns; }
};

// The first layer of some rows and panels. Between the layers lie tiles where they are used, else rows;
// `hidden` belongs to the first of these rows.
template <Activation kActivation>
void run_up(const Problem& p, const LayerWorker& worker, const Part& part, BFloat16* hidden) {
  const SourceRows rows = p.rows.from(part.first_row);
  const int64_t num_rows = part.end_row - part.first_row;
  const Panels panels{part.first_panel, part.end_panel};
  if (worker.uses_tiles())
    worker.multiply<kActivation>(rows, num_rows, p.up, panels, TileResults{hidden});
  else
    worker.multiply<kActivation>(rows, num_rows, p.up, panels, RowResults{hidden, p.hidden(), {}});
}

void run_down(const Problem& p, const LayerWorker& worker, const Part& part, const BFloat16* hidden) {
  const RowResults results = p.results.from(part.first_row);
  const int64_t num_rows = part.end_row - part.first_row;
  const Panels panels{part.first_panel, part.end_panel};
  if (worker.uses_tiles())
    worker.multiply_tiles(hidden, num_rows, p.down, panels, results);
  else
    worker.multiply<Activation::kNone>(SourceRows{hidden, p.hidden()}, num_rows, p.down, panels, results);
}

// Each thread computes both layers of blocks of rows.
template <Activation kActivation>
bool by_rows(const Problem& p, const Grid& grid, int64_t threads) {
  const int64_t rows = round_up(grid.block_rows, kMatrixBlock);
  Shares shares = Shares::of_equal_counts(grid.blocks, threads);
  std::atomic<bool> complete{true};
#pragma omp parallel
  {
    thread_local Scratch scratch, between;
    LayerWorker worker;
    const bool ready = worker.reserve(scratch, rows, p.up.depth) && between.reserve(rows * p.hidden() / 2, 1);
    if (!ready) complete = false;
    BFloat16* const hidden = ready ? reinterpret_cast<BFloat16*>(between.take(rows * p.hidden() / 2)) : nullptr;
    shares.work(omp_get_thread_num(), [&](int64_t block) {
      if (!ready) return;
      const int64_t first = block * grid.block_rows, end = std::min(p.num_rows, first + grid.block_rows);
      run_up<kActivation>(p, worker, {first, end, 0, p.up.panels()}, hidden);
      run_down(p, worker, {first, end, 0, p.down.panels()}, hidden);
    });
  }
  return complete;
}

// All threads compute the first layer of all rows, then the second.
template <Activation kActivation>
bool by_columns(const Problem& p, int64_t most_rows, int64_t threads) {
  const Grid up = divide_rows(p.num_rows, p.up.panels(), most_rows, threads, kMatrixBlock);
  const Grid down = divide_rows(p.num_rows, p.down.panels(), most_rows, threads, kMatrixBlock);
  const int64_t floats = round_up(p.num_rows, kMatrixBlock) * p.hidden() / 2;
  thread_local Scratch between;
  if (!between.reserve(floats, 1)) return false;
  BFloat16* const hidden = reinterpret_cast<BFloat16*>(between.take(floats));
  Shares first = Shares::of_equal_counts(up.items(), threads), second = Shares::of_equal_counts(down.items(), threads);
  std::atomic<bool> complete{true};
#pragma omp parallel
  {
    thread_local Scratch scratch;
    LayerWorker worker;
    const int thread = omp_get_thread_num();
    if (!worker.reserve(scratch, up.block_rows, p.up.depth)) complete = false;
#pragma omp barrier
    if (complete) {
      first.work(thread, [&](int64_t i) {
        const Part part = up.part(i);
        run_up<kActivation>(p, worker, part, hidden + part.first_row * p.hidden());
      });
    }
#pragma omp barrier
    if (complete) {
      second.work(thread, [&](int64_t i) {
        const Part part = down.part(i);
        run_down(p, worker, part, hidden + part.first_row * p.hidden());
      });
    }
  }
  return complete;
}

template <Activation kActivation>
bool multiply_all(const Problem& p) {
  if (p.num_rows == 0) return true;
  const int64_t threads = omp_get_max_threads(), most_rows = block_rows(p.hidden());
  const Grid grid = divide_rows(p.num_rows, 1, most_rows, threads);
  return grid.blocks >= threads ? by_rows<kActivation>(p, grid, threads) : by_columns<kActivation>(p, most_rows, threads);
}

struct Arguments {
  TensorView x, up, up_bias, down, down_bias, residual;
  int64_t hidden, columns;

  bool are_valid() const {
    return x.dtype == aoti_torch_dtype_bfloat16() && hidden % kPanel == 0 && is_layer(up, up_bias, x.sizes[1], hidden) &&
           is_layer(down, down_bias, hidden, columns) && is_residual(residual, x.sizes[0], columns);
  }

  Problem problem(BFloat16* out) const {
    return {rows_of_matrix(x),
            x.sizes[0],
            {up.as<const BFloat16>(), up_bias.as<const float>(), x.sizes[1], hidden},
            {down.as<const BFloat16>(), down_bias.as<const float>(), hidden, columns},
            {out, columns, rows_of_matrix(residual)}};
  }
};

}  // namespace

// x (N, K) bfloat16, K even; up and down bfloat16, packed as compiler/bf16/weights.py says, of H columns,
// a multiple of 32, and of M; their biases (H,) and (M,) float32 or null; activation behind the first
// layer, see activation.h; residual (N, M) bfloat16 or null, added last. Returns a new (N, M) bfloat16
// tensor.
INFINITY_EXPORT AOTITorchError INFINITY_JOIN(aoti_torch_cpu_bf16_mlp, INFINITY_DIGEST)(
    AtenTensorHandle x, AtenTensorHandle up, int64_t hidden, AtenTensorHandle* up_bias, int64_t activation,
    AtenTensorHandle down, int64_t columns, AtenTensorHandle* down_bias, AtenTensorHandle* residual, AtenTensorHandle* ret) {
  return guarded([&] {
    Arguments a{{}, {}, {}, {}, {}, {}, hidden, columns};
    TensorView out;
    if (!read_view(x, 2, &a.x) || !read_view(up, 1, &a.up) || !read_optional(up_bias, 1, &a.up_bias) ||
        !read_view(down, 1, &a.down) || !read_optional(down_bias, 1, &a.down_bias) ||
        !read_optional(residual, 2, &a.residual) || !a.are_valid() || !is_activation(activation))
      return false;
    const int64_t sizes[] = {a.x.sizes[0], columns};
    if (!make_output(2, sizes, aoti_torch_dtype_bfloat16(), ret, &out)) return false;
    const Problem problem = a.problem(out.as<BFloat16>());
    return fill_output(ret, [&] {
      bool done = false;
      with_activation(static_cast<Activation>(activation),
                      [&](auto kind) { done = multiply_all<decltype(kind)::value>(problem); });
      return done;
    });
  });
}

#endif
