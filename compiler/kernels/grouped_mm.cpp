// Products of groups of rows with a matrix for each group, as a mixture of experts needs them.
//
// Owns `infinity::grouped_mm`. The work is torch's own; under a name of ours it can be exported in
// float32 too.

#include "tensor_view.h"

#include <torch/csrc/inductor/aoti_torch/generated/c_shim_cpu.h>

// tokens (S, K), weights (E, K, N), of one dtype; ends (E,) int32, the row behind each group, never
// falling and at most S. Returns a new (S, N) tensor of the same dtype.
INFINITY_EXPORT AOTITorchError INFINITY_JOIN(aoti_torch_cpu_grouped_mm, INFINITY_DIGEST)(
    AtenTensorHandle tokens, AtenTensorHandle weights, AtenTensorHandle ends, AtenTensorHandle* ret) {
  return infinity::guarded(
      [&] { return aoti_torch_cpu__grouped_mm(tokens, weights, &ends, nullptr, nullptr, ret) == AOTI_TORCH_SUCCESS; });
}
