// The kernels for two inputs: one fused loop; every byte is read once and written once.
//
// Internal linkage: see low_precision.h.
#pragma once

#include <cstddef>
#include <cstring>

#include "engine/collectives/reduce/reduce.h"
#include "engine/collectives/reduce/reduce_elements-inl.h"

// The iterations of the loop that follows touch memory of their own.
#ifdef __clang__
#define NEURON_NO_LOOP_DEPENDENCES _Pragma("clang loop vectorize(assume_safety)")
#else
#define NEURON_NO_LOOP_DEPENDENCES _Pragma("GCC ivdep")
#endif

namespace neuron {
namespace {

// A loop with much arithmetic reaches less far ahead by itself than the memory could serve.
constexpr std::size_t kPrefetchTurn = 1024;
constexpr std::size_t kPrefetchAhead = 2048;

inline void prefetch(const std::byte* from) {
  constexpr std::size_t kLine = 64;
  for (std::size_t at = 0; at < kPrefetchTurn; at += kLine) __builtin_prefetch(from + kPrefetchAhead + at);
}

// Words [begin, end) of the outputs, each from those of both inputs at its place. Outputs may be the inputs.
template <typename Word, int kOutputs, typename Combine>
void combine_words(const ReduceCall& call, std::size_t begin, std::size_t end, Combine combine) {
  const std::byte* const in0 = call.inputs[0];
  const std::byte* const in1 = call.inputs[1];
  std::byte* const out0 = call.outputs[0];
  std::byte* const out1 = call.outputs[kOutputs - 1];
  NEURON_NO_LOOP_DEPENDENCES
  for (std::size_t i = begin; i < end; ++i) {
    Word a, b;
    std::memcpy(&a, in0 + i * sizeof a, sizeof a);
    std::memcpy(&b, in1 + i * sizeof b, sizeof b);
    const Word x = combine(a, b);
    std::memcpy(out0 + i * sizeof x, &x, sizeof x);
    if constexpr (kOutputs == 2) std::memcpy(out1 + i * sizeof x, &x, sizeof x);
  }
}

// What becomes of two accumulators.
template <typename E, typename Op>
auto combination(const ReduceCall& call) {
  using Acc = typename E::Acc;
  if constexpr (Op::kScaled) {
    const auto factor0 = static_cast<Acc>(call.factors[0]), factor1 = static_cast<Acc>(call.factors[1]);
    return [=](Acc a, Acc b) { return Op::finish(Op::apply(a * factor0, b * factor1), 2); };
  } else {
    return [](Acc a, Acc b) { return Op::finish(Op::apply(a, b), 2); };
  }
}

// Elements from `begin` on.
template <typename E, typename Op, int kOutputs>
void reduce_two(const ReduceCall& call, std::size_t begin = 0) {
  using Storage = typename E::Storage;
  const auto combine = combination<E, Op>(call);
  combine_words<Storage, kOutputs>(call, begin, call.count, [combine](Storage a, Storage b) {
    return E::store(combine(E::load(a), E::load(b)));
  });
}

// Formats whose elements are taken two by two (BFloat16Element::Pair).
template <typename E>
constexpr bool kHasPairs = false;
template <>
constexpr bool kHasPairs<BFloat16Element> = true;

template <typename E, typename Op, int kOutputs>
void reduce_two_in_pairs(const ReduceCall& call) {
  using Pair = typename E::Pair;
  const auto combine = combination<E, Op>(call);
  const auto combine_pairs = [combine](Pair a, Pair b) {
    return E::join(combine(E::low(a), E::low(b)), combine(E::high(a), E::high(b)));
  };
  const std::size_t pairs = call.count / 2;
  constexpr std::size_t kTurn = kPrefetchTurn / sizeof(Pair);
  for (std::size_t begin = 0; begin < pairs; begin += kTurn) {
    prefetch(call.inputs[0] + begin * sizeof(Pair));
    prefetch(call.inputs[1] + begin * sizeof(Pair));
    combine_words<Pair, kOutputs>(call, begin, pairs - begin < kTurn ? pairs : begin + kTurn, combine_pairs);
  }
  reduce_two<E, Op, kOutputs>(call, 2 * pairs);
}

}  // namespace
}  // namespace neuron
