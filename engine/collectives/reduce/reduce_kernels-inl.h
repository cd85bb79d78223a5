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

#if defined(__F16C__)
#include <immintrin.h>
#endif

#include "engine/collectives/reduce/low_precision.h"
#include "engine/collectives/reduce/reduce.h"

namespace neuron {
namespace {

// ---- element formats: Storage in memory, Acc while reducing ----
//
// kByBlock: conversions are faster for a whole block (an instruction of its own, a table) than inside the
// loops.

template <typename T>
struct PlainElement {
  static constexpr bool kByBlock = false;
  using Storage = T;
  using Acc = T;
  static Acc load(Storage x) { return x; }
  static Storage store(Acc x) { return x; }
};

struct BoolElement {
  static constexpr bool kByBlock = false;
  using Storage = std::uint8_t;
  using Acc = std::uint8_t;
  static Acc load(Storage x) { return x != 0; }
  static Storage store(Acc x) { return x; }
};

struct BFloat16Element {
  static constexpr bool kByBlock = false;
  using Storage = std::uint16_t;
  using Acc = float;
  static Acc load(Storage x) { return bf16_to_float(x); }
  static Storage store(Acc x) { return float_to_bf16(x); }
};

struct Float16Element {
  static constexpr bool kByBlock = true;
  using Storage = std::uint16_t;
  using Acc = float;
  static Acc load(Storage x) { return fp16_to_float(x); }
  static Storage store(Acc x) { return float_to_fp16(x); }

  static void widen(const std::byte* from, float* to, std::size_t n) {
    std::size_t i = 0;
#if defined(__F16C__)
    for (; i + 8 <= n; i += 8) {
      __m128i x;
      std::memcpy(&x, from + 2 * i, sizeof x);
      _mm256_storeu_ps(to + i, _mm256_cvtph_ps(x));
    }
#endif
    for (; i < n; ++i) {
      Storage x;
      std::memcpy(&x, from + 2 * i, sizeof x);
      to[i] = load(x);
    }
  }

  static void narrow(const float* from, Storage* to, std::size_t n) {
    std::size_t i = 0;
#if defined(__F16C__)
    for (; i + 8 <= n; i += 8) {
      const __m128i x =
          _mm256_cvtps_ph(_mm256_loadu_ps(from + i), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
      std::memcpy(to + i, &x, sizeof x);
    }
#endif
    for (; i < n; ++i) to[i] = store(from[i]);
  }
};

template <typename Format>
struct Float8Element {
  static constexpr bool kByBlock = true;
  using Storage = std::uint8_t;
  using Acc = float;
  static Acc load(Storage x) { return float8_to_float<Format>(x); }
  static Storage store(Acc x) { return float_to_float8<Format>(x); }

  static void widen(const std::byte* from, float* to, std::size_t n) {
    struct Table {
      Table() {
        for (unsigned x = 0; x < 256; ++x) values[x] = load(static_cast<Storage>(x));
      }
      float values[256];
    };
    static const Table table;
    const float* const values = table.values;
    for (std::size_t i = 0; i < n; ++i) to[i] = values[static_cast<std::size_t>(from[i])];
  }

  static void narrow(const float* from, Storage* to, std::size_t n) {
    for (std::size_t i = 0; i < n; ++i) to[i] = store(from[i]);
  }
};

template <typename T>
struct Complex {
  T re, im;
};

template <typename Part>  // PlainElement<float>, PlainElement<double>, Float16Element
struct ComplexElement {
  static constexpr bool kByBlock = false;
  using Storage = Complex<typename Part::Storage>;
  using Acc = Complex<typename Part::Acc>;
  static Acc load(Storage x) { return {Part::load(x.re), Part::load(x.im)}; }
  static Storage store(Acc x) { return {Part::store(x.re), Part::store(x.im)}; }
};

template <typename E>
inline typename E::Acc load_at(const std::byte* base, std::size_t i) {
  typename E::Storage x;
  std::memcpy(&x, base + i * sizeof x, sizeof x);
  return E::load(x);
}

// ---- operations on accumulators ----

// Signed integers wrap around: computed unsigned, in at least 32 bits (narrow types would promote to int).
template <typename T>
using Wrapping = std::conditional_t<(sizeof(T) < 4), std::uint32_t, std::make_unsigned_t<T>>;

template <typename T>
inline T divide(T sum, std::size_t n) {
  if constexpr (std::is_floating_point_v<T>) {
    return sum / static_cast<T>(n);
  } else if constexpr (std::is_signed_v<T>) {
    return static_cast<T>(static_cast<std::int64_t>(sum) / static_cast<std::int64_t>(n));
  } else {
    return static_cast<T>(static_cast<std::uint64_t>(sum) / n);
  }
}

struct SumOp {
  static constexpr bool kScaled = false;
  template <typename T>
  static T apply(T a, T b) {
    if constexpr (std::is_floating_point_v<T>) {
      return a + b;
    } else {
      return static_cast<T>(static_cast<Wrapping<T>>(a) + static_cast<Wrapping<T>>(b));
    }
  }
  template <typename T>
  static T finish(T x, std::size_t) {
    return x;
  }
};

struct AvgOp : SumOp {
  template <typename T>
  static T finish(T x, std::size_t n) {
    return divide(x, n);
  }
};

struct PremulSumOp : SumOp {
  static constexpr bool kScaled = true;
};

struct ProductOp : SumOp {
  template <typename T>
  static T apply(T a, T b) {
    if constexpr (std::is_floating_point_v<T>) {
      return a * b;
    } else if constexpr (std::is_integral_v<T>) {
      return static_cast<T>(static_cast<Wrapping<T>>(a) * static_cast<Wrapping<T>>(b));
    } else {
      return {a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
    }
  }
};

// An accumulated NaN stays, a NaN that comes is taken.
struct MinOp : SumOp {
  template <typename T>
  static T apply(T a, T b) {
    if constexpr (std::is_floating_point_v<T>) {
      return a < b || a != a ? a : b;
    } else {
      return a < b ? a : b;
    }
  }
};

struct MaxOp : SumOp {
  template <typename T>
  static T apply(T a, T b) {
    if constexpr (std::is_floating_point_v<T>) {
      return a > b || a != a ? a : b;
    } else {
      return a > b ? a : b;
    }
  }
};

struct BandOp : SumOp {
  template <typename T>
  static T apply(T a, T b) {
    return static_cast<T>(a & b);
  }
};

struct BorOp : SumOp {
  template <typename T>
  static T apply(T a, T b) {
    return static_cast<T>(a | b);
  }
};

struct BxorOp : SumOp {
  template <typename T>
  static T apply(T a, T b) {
    return static_cast<T>(a ^ b);
  }
};

// ---- loops ----

constexpr std::size_t kBlockBytes = 8192;

// Outputs may be the inputs, at the same index only: no dependence from one iteration to another.
template <typename E, typename Op, int kOutputs>
void reduce_two(const ReduceCall& call) {
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
#pragma GCC ivdep
  for (std::size_t i = 0; i < count; ++i) {
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
#pragma GCC ivdep
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
  if constexpr (!E::kByBlock) {
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
    case ReduceOp::kProduct:
      return reduce<ComplexElement<Part>, ProductOp>;
    default:
      return nullptr;
  }
}

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
