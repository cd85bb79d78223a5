// The reduction kernels as templates: element format x operation. Included by one source file for each
// instruction set, which differ only in the compiler's flags and in the fp16 conversions.
//
//   two inputs, one or two outputs: one fused loop; every byte is read once and written once
//   otherwise:  block by block (the block stays in L1):
//                 acc  = in_0 op in_1 op in_2 op in_3      then four more inputs at a time
//                 tmp  = finish(acc), narrowed             then copied to each output
//
// Everything has internal linkage: see low_precision.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "engine/collectives/reduce/reduce.h"
#include "engine/collectives/reduce/reduce_elements-inl.h"
#include "engine/collectives/reduce/reduce_operations-inl.h"
#include "engine/collectives/reduce/reduce_two-inl.h"

namespace neuron {
namespace {

constexpr std::size_t kBlockBytes = 8192;

// acc = [acc op] in_first op … , `kInputs` of them.
template <typename E, typename Op, bool kStart, std::size_t kInputs>
void accumulate(typename E::Acc* __restrict acc, const std::byte* const* inputs, const double* factors,
                std::size_t begin, std::size_t n) {
  using Acc = typename E::Acc;
  const std::byte* in[kInputs];
  [[maybe_unused]] Acc factor[kInputs] = {};
  for (std::size_t k = 0; k < kInputs; ++k) {
    in[k] = inputs[k] + begin * sizeof(typename E::Storage);
    if constexpr (Op::kScaled) factor[k] = static_cast<Acc>(factors[k]);
  }
  NEURON_NO_LOOP_DEPENDENCES
  for (std::size_t i = 0; i < n; ++i) {
    Acc value = kStart ? Acc{} : acc[i];
#pragma GCC unroll 4
    for (std::size_t k = 0; k < kInputs; ++k) {
      Acc x = load_at<E>(in[k], i);
      if constexpr (Op::kScaled) x = x * factor[k];
      value = kStart && k == 0 ? x : Op::apply(value, x);
    }
    acc[i] = value;
  }
}

template <typename E, typename Op>
void reduce_block(const ReduceCall& call, typename E::Acc* acc, std::size_t begin, std::size_t n) {
  std::size_t done = 0;
  const auto step = [&]<bool kStart, std::size_t kInputs>() {
    const double* factors = Op::kScaled ? call.factors + done : nullptr;
    accumulate<E, Op, kStart, kInputs>(acc, call.inputs + done, factors, begin, n);
    done += kInputs;
  };
  switch (call.input_count < 4 ? call.input_count : 4) {
    case 1:
      step.template operator()<true, 1>();
      break;
    case 2:
      step.template operator()<true, 2>();
      break;
    case 3:
      step.template operator()<true, 3>();
      break;
    default:
      step.template operator()<true, 4>();
  }
  while (call.input_count - done >= 4) step.template operator()<false, 4>();
  while (done < call.input_count) step.template operator()<false, 1>();
}

template <typename E, typename Op>
void reduce_converted_block(const ReduceCall& call, float* acc, std::size_t begin, std::size_t n) {
  alignas(64) float widened[kBlockBytes / sizeof(float)];
  const auto* const bytes = reinterpret_cast<const std::byte*>(widened);
  for (std::size_t k = 0; k < call.input_count; ++k) {
    E::widen(call.inputs[k] + begin * sizeof(typename E::Storage), widened, n);
    const double* factor = Op::kScaled ? call.factors + k : nullptr;
    if (k == 0) {
      accumulate<PlainElement<float>, Op, true, 1>(acc, &bytes, factor, 0, n);
    } else {
      accumulate<PlainElement<float>, Op, false, 1>(acc, &bytes, factor, 0, n);
    }
  }
}

template <typename E, typename Op>
void reduce_blocks(const ReduceCall& call) {
  using Acc = typename E::Acc;
  using Storage = typename E::Storage;
  constexpr std::size_t kBlock = kBlockBytes / sizeof(Acc);
  alignas(64) Acc acc[kBlock];
  alignas(64) Storage narrowed[kBlock];
  for (std::size_t begin = 0; begin < call.count; begin += kBlock) {
    const std::size_t n = call.count - begin < kBlock ? call.count - begin : kBlock;
    if constexpr (E::kByBlock) {
      reduce_converted_block<E, Op>(call, acc, begin, n);
      for (std::size_t i = 0; i < n; ++i) acc[i] = Op::finish(acc[i], call.input_count);
      E::narrow(acc, narrowed, n);
    } else {
      reduce_block<E, Op>(call, acc, begin, n);
      for (std::size_t i = 0; i < n; ++i) narrowed[i] = E::store(Op::finish(acc[i], call.input_count));
    }
    for (std::size_t k = 0; k < call.output_count; ++k)
      std::memcpy(call.outputs[k] + begin * sizeof(Storage), narrowed, n * sizeof(Storage));
  }
}

template <typename E, typename Op>
void reduce(const ReduceCall& call) {
  if constexpr (kHasPairs<E>) {
    if (call.input_count == 2 && call.output_count == 1) return reduce_two_in_pairs<E, Op, 1>(call);
    if (call.input_count == 2 && call.output_count == 2) return reduce_two_in_pairs<E, Op, 2>(call);
  } else if constexpr (!E::kByBlock) {
    if (call.input_count == 2 && call.output_count == 1) return reduce_two<E, Op, 1>(call);
    if (call.input_count == 2 && call.output_count == 2) return reduce_two<E, Op, 2>(call);
  }
  reduce_blocks<E, Op>(call);
}

// A complex number is two reals wherever the operation works on the parts alone.
template <typename E, typename Op>
void reduce_parts(const ReduceCall& call) {
  ReduceCall parts = call;
  parts.count = call.count * 2;
  reduce<E, Op>(parts);
}

// ---- selection ----

template <typename E>
ReduceKernel float_kernel(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
      return reduce<E, SumOp>;
    case ReduceOp::kAvg:
      return reduce<E, AvgOp>;
    case ReduceOp::kProduct:
      return reduce<E, ProductOp>;
    case ReduceOp::kMin:
      return reduce<E, MinOp>;
    case ReduceOp::kMax:
      return reduce<E, MaxOp>;
    case ReduceOp::kPremulSum:
      return reduce<E, PremulSumOp>;
    default:
      return nullptr;
  }
}

template <typename T>
ReduceKernel integer_kernel(ReduceOp op) {
  using E = PlainElement<T>;
  using Bits = PlainElement<std::make_unsigned_t<T>>;  // same result, half the code
  switch (op) {
    case ReduceOp::kSum:
      return reduce<Bits, SumOp>;
    case ReduceOp::kAvg:
      return reduce<E, AvgOp>;
    case ReduceOp::kProduct:
      return reduce<Bits, ProductOp>;
    case ReduceOp::kMin:
      return reduce<E, MinOp>;
    case ReduceOp::kMax:
      return reduce<E, MaxOp>;
    case ReduceOp::kBand:
      return reduce<Bits, BandOp>;
    case ReduceOp::kBor:
      return reduce<Bits, BorOp>;
    case ReduceOp::kBxor:
      return reduce<Bits, BxorOp>;
    default:
      return nullptr;
  }
}

inline ReduceKernel bool_kernel(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kMax:
    case ReduceOp::kBor:
      return reduce<BoolElement, BorOp>;
    case ReduceOp::kProduct:
    case ReduceOp::kMin:
    case ReduceOp::kBand:
      return reduce<BoolElement, BandOp>;
    case ReduceOp::kBxor:
      return reduce<BoolElement, BxorOp>;
    default:
      return nullptr;
  }
}

template <typename Part>
ReduceKernel complex_kernel(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
      return reduce_parts<Part, SumOp>;
    case ReduceOp::kAvg:
      return reduce_parts<Part, AvgOp>;
    case ReduceOp::kPremulSum:
      return reduce_parts<Part, PremulSumOp>;
    default:
      return nullptr;
  }
}

// All but the product of complex numbers (complex_product_kernel).
inline ReduceKernel select_kernel(DType dtype, ReduceOp op) {
  switch (dtype) {
    case DType::kUint8:
      return integer_kernel<std::uint8_t>(op);
    case DType::kInt8:
      return integer_kernel<std::int8_t>(op);
    case DType::kInt16:
      return integer_kernel<std::int16_t>(op);
    case DType::kInt32:
      return integer_kernel<std::int32_t>(op);
    case DType::kInt64:
      return integer_kernel<std::int64_t>(op);
    case DType::kUint16:
      return integer_kernel<std::uint16_t>(op);
    case DType::kUint32:
      return integer_kernel<std::uint32_t>(op);
    case DType::kUint64:
      return integer_kernel<std::uint64_t>(op);
    case DType::kFloat16:
      return float_kernel<Float16Element>(op);
    case DType::kBFloat16:
      return float_kernel<BFloat16Element>(op);
    case DType::kFloat32:
      return float_kernel<PlainElement<float>>(op);
    case DType::kFloat64:
      return float_kernel<PlainElement<double>>(op);
    case DType::kComplex32:
      return complex_kernel<Float16Element>(op);
    case DType::kComplex64:
      return complex_kernel<PlainElement<float>>(op);
    case DType::kComplex128:
      return complex_kernel<PlainElement<double>>(op);
    case DType::kBool:
      return bool_kernel(op);
    case DType::kFloat8E4M3:
      return float_kernel<Float8Element<E4M3Fn>>(op);
    case DType::kFloat8E5M2:
      return float_kernel<Float8Element<E5M2>>(op);
    case DType::kFloat8E4M3Fnuz:
      return float_kernel<Float8Element<E4M3Fnuz>>(op);
    case DType::kFloat8E5M2Fnuz:
      return float_kernel<Float8Element<E5M2Fnuz>>(op);
    case DType::kFloat8E8M0:
      return nullptr;
  }
  return nullptr;
}

}  // namespace
}  // namespace neuron
