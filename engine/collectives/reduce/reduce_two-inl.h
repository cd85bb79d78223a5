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

// Formats whose elements are taken two by two (BFloat16Element::Pair).
template <typename E>
constexpr bool kHasPairs = false;
template <>
constexpr bool kHasPairs<BFloat16Element> = true;

// Outputs may be the inputs, at the same index only: no dependence from one iteration to another. Elements
// from `begin` on.
template <typename E, typename Op, int kOutputs>
void reduce_two(const ReduceCall& call, std::size_t begin = 0) {
  using Acc = typename E::Acc;
  const std::byte* const in0 = call.inputs[0];
  const std::byte* const in1 = call.inputs[1];
  std::byte* const out0 = call.outputs[0];
  std::byte* const out1 = call.outputs[kOutputs - 1];
  [[maybe_unused]] Acc factor0{}, factor1{};
  if constexpr (Op::kScaled) {
    factor0 = static_cast<Acc>(call.factors[0]);
    factor1 = static_cast<Acc>(call.factors[1]);
  }
  const std::size_t count =
      call.count;  // a copy: the byte stores below may alias anything, in the compiler's eyes
  NEURON_NO_LOOP_DEPENDENCES
  for (std::size_t i = begin; i < count; ++i) {
    Acc a = load_at<E>(in0, i);
    Acc b = load_at<E>(in1, i);
    if constexpr (Op::kScaled) {
      a = a * factor0;
      b = b * factor1;
    }
    const typename E::Storage x = E::store(Op::finish(Op::apply(a, b), 2));
    std::memcpy(out0 + i * sizeof x, &x, sizeof x);
    if constexpr (kOutputs == 2) std::memcpy(out1 + i * sizeof x, &x, sizeof x);
  }
}

template <typename E, typename Op, int kOutputs>
void reduce_two_in_pairs(const ReduceCall& call) {
  using Acc = typename E::Acc;
  using Pair = typename E::Pair;
  const std::byte* const in0 = call.inputs[0];
  const std::byte* const in1 = call.inputs[1];
  std::byte* const out0 = call.outputs[0];
  std::byte* const out1 = call.outputs[kOutputs - 1];
  [[maybe_unused]] Acc factor0{}, factor1{};
  if constexpr (Op::kScaled) {
    factor0 = static_cast<Acc>(call.factors[0]);
    factor1 = static_cast<Acc>(call.factors[1]);
  }
  const auto combine = [=](Acc a, Acc b) {
    if constexpr (Op::kScaled) return Op::finish(Op::apply(a * factor0, b * factor1), 2);
    return Op::finish(Op::apply(a, b), 2);
  };
  const std::size_t pairs = call.count / 2;
  constexpr std::size_t kTurn = kPrefetchTurn / sizeof(Pair);
  for (std::size_t begin = 0; begin < pairs; begin += kTurn) {
    const std::size_t end = pairs - begin < kTurn ? pairs : begin + kTurn;
    prefetch(in0 + begin * sizeof(Pair));
    prefetch(in1 + begin * sizeof(Pair));
    NEURON_NO_LOOP_DEPENDENCES
    for (std::size_t i = begin; i < end; ++i) {
      Pair a, b;
      std::memcpy(&a, in0 + i * sizeof a, sizeof a);
      std::memcpy(&b, in1 + i * sizeof b, sizeof b);
      const Pair x = E::join(combine(E::low(a), E::low(b)), combine(E::high(a), E::high(b)));
      std::memcpy(out0 + i * sizeof x, &x, sizeof x);
      if constexpr (kOutputs == 2) std::memcpy(out1 + i * sizeof x, &x, sizeof x);
    }
  }
  reduce_two<E, Op, kOutputs>(call, 2 * pairs);
}

}  // namespace
}  // namespace neuron
