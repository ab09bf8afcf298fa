// Term weights of packed sequences (SPLADE; Formal et al. 2021): the maximum over a sequence's tokens
// of log(1 + relu(logit)).
//
// Owns `infinity::splade_pool`, for float32 and bfloat16. One work item is a block of the
// vocabulary: its weights are packed once and meet the tokens of every sequence while they are in
// the cache. log(1 + relu(x)) never falls, so the maximum is taken of the logits, of which no more
// than a block exists.

#include "scratch.h"
#include "tensor_view.h"
#include "tile.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>

namespace {

using namespace infinity;

constexpr int64_t kVocabularyBlock = 128;
constexpr int64_t kTokenBlock = 48;

template <class T>
struct Problem {
  const T *hidden, *weight, *bias;  // bias: or null
  int64_t hidden_row, weight_row, dim, vocabulary;
  const int32_t* bounds;
  int64_t num_sequences;
  float* out;  // [B, V]

  int64_t width() const { return round_up(steps_of<StepOf<T>>(dim), kLanes); }
};

struct Buffers {
  float *spare, *weights_t, *tokens, *logits, *best;

  bool reserve(Scratch& scratch, int64_t width) {
    const int64_t sizes[] = {kLanes * width, width * kVocabularyBlock, kTokenBlock * width, kTokenBlock * kVocabularyBlock,
                             kVocabularyBlock};
    float** const slots[] = {&spare, &weights_t, &tokens, &logits, &best};
    int64_t total = 0;
    for (const int64_t size : sizes) total += size;
    if (!scratch.reserve(total, 5)) return false;
    for (int i = 0; i < 5; ++i) *slots[i] = scratch.take(sizes[i]);
    return true;
  }
};

// Takes the maximum of the logits of some tokens into `best`.
template <class T>
void take_tokens(const Problem<T>& p, int64_t first, int64_t tokens, int64_t columns, const Buffers& buffers) {
  using Step = StepOf<T>;
  const float* rows = buffers.tokens;
  int64_t row = p.width();
  if constexpr (std::is_same_v<T, float>) {  // as they lie
    rows = p.hidden + first * p.hidden_row;
    row = p.hidden_row;
  } else {
    for (int64_t t = 0; t < tokens; ++t)
      pack_row<Step, T>(p.hidden + (first + t) * p.hidden_row, p.dim, buffers.tokens + t * row, row);
  }
  matmul<Step>(rows, row, buffers.weights_t, columns, buffers.logits, columns, tokens, columns, steps_of<Step>(p.dim), false);
  for (int64_t t = 0; t < tokens; ++t)
    for (int64_t c = 0; c < columns; c += kLanes)
      store(buffers.best + c, vmax(load(buffers.best + c), load(buffers.logits + t * columns + c)));
}

template <class T>
void write_terms(const Problem<T>& p, int64_t first, int64_t terms, const float* best, float* out) {
  for (int64_t c = 0; c < terms; ++c) {
    const float logit = best[c] + (p.bias ? widen(p.bias[first + c]) : 0.f);
    out[c] = logit <= 0.f ? 0.f : std::log1p(logit);  // most terms are absent
  }
}

// One block of the vocabulary against all sequences.
template <class T>
void pool_block(const Problem<T>& p, int64_t first, const Buffers& buffers) {
  const int64_t terms = std::min(kVocabularyBlock, p.vocabulary - first), columns = round_up(terms, kLanes);
  const auto term = [&](int64_t i) { return p.weight + (first + i) * p.weight_row; };
  pack_transposed<StepOf<T>, T>(term, terms, p.dim, buffers.spare, buffers.weights_t, columns);
  for (int64_t b = 0; b < p.num_sequences; ++b) {
    const int64_t start = p.bounds[b], end = p.bounds[b + 1];
    float* const out = p.out + b * p.vocabulary + first;
    if (start == end) {
      std::fill_n(out, terms, 0.f);
      continue;
    }
    std::fill_n(buffers.best, columns, -std::numeric_limits<float>::infinity());
    for (int64_t t = start; t < end; t += kTokenBlock) take_tokens(p, t, std::min(kTokenBlock, end - t), columns, buffers);
    write_terms(p, first, terms, buffers.best, out);
  }
}

template <class T>
bool pool(const Problem<T>& p) {
  std::atomic<bool> complete{true};
#pragma omp parallel
  {
    thread_local Scratch scratch;
    Buffers buffers;
    const bool ready = buffers.reserve(scratch, p.width());
    if (!ready) complete = false;
#pragma omp for schedule(dynamic, 1)
    for (int64_t first = 0; first < p.vocabulary; first += kVocabularyBlock)
      if (ready) pool_block(p, first, buffers);
  }
  return complete;
}

struct Arguments {
  TensorView hidden, weight, bias, cu_seqlens;

  bool are_valid() const {
    const bool is_bias = bias.data == nullptr || (bias.dtype == hidden.dtype && bias.sizes[0] == weight.sizes[0]);
    return is_supported(hidden) && weight.dtype == hidden.dtype && weight.sizes[1] == hidden.sizes[1] && is_bias &&
           are_bounds(cu_seqlens, hidden.sizes[0]);
  }

  template <class T>
  bool run(float* out) const {
    return pool(Problem<T>{hidden.as<const T>(), weight.as<const T>(), bias.as<const T>(), hidden.strides[0], weight.strides[0],
                           hidden.sizes[1], weight.sizes[0], cu_seqlens.as<const int32_t>(), cu_seqlens.sizes[0] - 1, out});
  }
};

}  // namespace

// hidden (T, D), weight (V, D), bias (V,) or null, of one dtype, float32 or bfloat16; cu_seqlens
// (B + 1,) int32. Returns a new (B, V) float32 tensor; an empty sequence yields zeros.
INFINITY_EXPORT AOTITorchError INFINITY_JOIN(aoti_torch_cpu_splade_pool, INFINITY_DIGEST)(
    AtenTensorHandle hidden, AtenTensorHandle weight, AtenTensorHandle* bias, AtenTensorHandle cu_seqlens,
    AtenTensorHandle* ret) {
  return guarded([&] {
    Arguments a;
    TensorView out;
    if (!read_view(hidden, 2, &a.hidden) || !read_view(weight, 2, &a.weight) || !read_optional(bias, 1, &a.bias) ||
        !read_view(cu_seqlens, 1, &a.cu_seqlens) || !a.are_valid())
      return false;
    const int64_t sizes[] = {a.cu_seqlens.sizes[0] - 1, a.weight.sizes[0]};
    if (!make_output(2, sizes, aoti_torch_dtype_float32(), ret, &out)) return false;
    return fill_output(ret, [&] {
      return is_float32(a.hidden) ? a.run<float>(out.as<float>()) : a.run<BFloat16>(out.as<float>());
    });
  });
}
