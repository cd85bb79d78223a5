#include "engine/testing/exact_values.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "engine/base/check.h"
#include "engine/collectives/reduce/element_value.h"
#include "engine/collectives/reduce/low_precision.h"

namespace neuron {

namespace {

std::uint64_t mix(std::uint64_t x) {
  x += 0x9E3779B97F4A7C15u;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

bool is_complex(DType dtype) {
  return dtype == DType::kComplex32 || dtype == DType::kComplex64 || dtype == DType::kComplex128;
}

// The real type of a complex one; other types are their own.
DType part_type(DType dtype) {
  switch (dtype) {
    case DType::kComplex32:
      return DType::kFloat16;
    case DType::kComplex64:
      return DType::kFloat32;
    case DType::kComplex128:
      return DType::kFloat64;
    default:
      return dtype;
  }
}

bool is_float(DType dtype) {
  switch (dtype) {
    case DType::kFloat16:
    case DType::kBFloat16:
    case DType::kFloat32:
    case DType::kFloat64:
    case DType::kFloat8E4M3:
    case DType::kFloat8E5M2:
    case DType::kFloat8E4M3Fnuz:
    case DType::kFloat8E5M2Fnuz:
      return true;
    default:
      return false;
  }
}

bool is_signed(DType dtype) {
  return is_float(dtype) || dtype == DType::kInt8 || dtype == DType::kInt16 || dtype == DType::kInt32 ||
         dtype == DType::kInt64;
}

template <typename T>
void put(std::byte* at, T value) {
  std::memcpy(at, &value, sizeof value);
}

void store_float(DType dtype, std::byte* at, double value) {
  const auto narrow = static_cast<float>(value);
  switch (dtype) {
    case DType::kFloat16:
      return put(at, float_to_fp16(narrow));
    case DType::kBFloat16:
      return put(at, float_to_bf16(narrow));
    case DType::kFloat32:
      return put(at, narrow);
    case DType::kFloat64:
      return put(at, value);
    case DType::kFloat8E4M3:
      return put(at, float_to_float8<E4M3Fn>(narrow));
    case DType::kFloat8E5M2:
      return put(at, float_to_float8<E5M2>(narrow));
    case DType::kFloat8E4M3Fnuz:
      return put(at, float_to_float8<E4M3Fnuz>(narrow));
    default:
      return put(at, float_to_float8<E5M2Fnuz>(narrow));
  }
}

void store_integer(DType dtype, std::byte* at, std::int64_t value) {
  if (dtype == DType::kBool) return put(at, static_cast<std::uint8_t>(value != 0));
  const auto bits = std::bit_cast<std::uint64_t>(value);  // the low bytes, on a little-endian machine
  std::memcpy(at, &bits, dtype_size(dtype));
}

std::int64_t read_integer(DType dtype, const std::byte* at) {
  std::uint64_t bits = 0;
  std::memcpy(&bits, at, dtype_size(dtype));
  if (dtype == DType::kBool) return bits != 0;
  const std::size_t shift = 64 - 8 * dtype_size(dtype);
  return is_signed(dtype) ? std::bit_cast<std::int64_t>(bits << shift) >> shift
                          : std::bit_cast<std::int64_t>(bits);
}

std::int64_t small_integer(DType dtype, ReduceOp op, std::uint64_t bits) {
  if (dtype == DType::kBool) return static_cast<std::int64_t>(bits % 2);
  if (op == ReduceOp::kProduct)
    return is_signed(dtype) && bits % 4 == 3 ? -1 : static_cast<std::int64_t>(1 + bits % 2);
  return static_cast<std::int64_t>(bits % 8) - (is_signed(dtype) ? 4 : 0);
}

double reduce_floats(ReduceOp op, DType part, const std::vector<double>& values,
                     const std::vector<double>& factors) {
  double result = op == ReduceOp::kPremulSum ? values[0] * factors[0] : values[0];
  for (std::size_t i = 1; i < values.size(); ++i) {
    const double x = values[i];
    switch (op) {
      case ReduceOp::kProduct:
        result *= x;
        break;
      case ReduceOp::kMin:
        result = std::min(result, x);
        break;
      case ReduceOp::kMax:
        result = std::max(result, x);
        break;
      case ReduceOp::kPremulSum:
        result += x * factors[i];
        break;
      default:
        result += x;
    }
  }
  if (op != ReduceOp::kAvg) return result;
  // In the accumulator's type: the quotient is rounded there first.
  const auto n = static_cast<double>(values.size());
  if (part == DType::kFloat64) return result / n;
  return static_cast<double>(static_cast<float>(result) / static_cast<float>(n));
}

std::int64_t reduce_integers(ReduceOp op, bool boolean, const std::vector<std::int64_t>& values) {
  std::int64_t result = values[0];
  for (std::size_t i = 1; i < values.size(); ++i) {
    const std::int64_t x = values[i];
    switch (op) {
      case ReduceOp::kProduct:
        result *= x;
        break;
      case ReduceOp::kMin:
        result = std::min(result, x);
        break;
      case ReduceOp::kMax:
        result = std::max(result, x);
        break;
      case ReduceOp::kBand:
        result &= x;
        break;
      case ReduceOp::kBor:
        result |= x;
        break;
      case ReduceOp::kBxor:
        result ^= x;
        break;
      default:
        result = boolean ? (result | x) : result + x;
    }
  }
  return op == ReduceOp::kAvg ? result / static_cast<std::int64_t>(values.size()) : result;
}

void multiply_complex(DType part, std::size_t size, const std::vector<std::vector<std::byte>>& inputs,
                      std::size_t offset, std::byte* out) {
  double re = 1;
  double im = 0;
  for (const auto& input : inputs) {
    const double a = read_element(part, input.data() + offset);
    const double b = read_element(part, input.data() + offset + size);
    const double real = re * a - im * b;
    im = re * b + im * a;
    re = real;
  }
  store_float(part, out, re);
  store_float(part, out + size, im);
}

}  // namespace

const std::vector<DType>& all_dtypes() {
  static const std::vector<DType> all = [] {
    std::vector<DType> out;
    for (int i = 0; i <= static_cast<int>(DType::kFloat8E8M0); ++i) out.push_back(static_cast<DType>(i));
    return out;
  }();
  return all;
}

const std::vector<ReduceOp>& all_reduce_ops() {
  static const std::vector<ReduceOp> all{ReduceOp::kSum, ReduceOp::kAvg,  ReduceOp::kProduct,
                                         ReduceOp::kMin, ReduceOp::kMax,  ReduceOp::kBand,
                                         ReduceOp::kBor, ReduceOp::kBxor, ReduceOp::kPremulSum};
  return all;
}

std::vector<std::byte> exact_values(DType dtype, ReduceOp op, std::size_t count, std::uint64_t seed) {
  const DType part = part_type(dtype);
  const std::size_t size = dtype_size(part);
  const std::size_t parts = count * (is_complex(dtype) ? 2 : 1);
  std::vector<std::byte> out(parts * size);
  for (std::size_t i = 0; i < parts; ++i) {
    const std::int64_t value = small_integer(part, op, mix(seed * 1'000'003 + i));
    if (is_float(part)) {
      store_float(part, out.data() + i * size, static_cast<double>(value));
    } else {
      store_integer(part, out.data() + i * size, value);
    }
  }
  return out;
}

std::vector<std::byte> any_bytes(DType dtype, std::size_t count, std::uint64_t seed) {
  std::vector<std::byte> out(count * dtype_size(dtype));
  for (std::size_t i = 0; i < out.size(); ++i)
    out[i] = static_cast<std::byte>(mix(seed * 1'000'003 + i) & 0xFF);
  return out;
}

std::vector<std::byte> one_values(DType dtype, std::size_t count) {
  const DType part = part_type(dtype);
  const std::size_t size = dtype_size(part);
  std::vector<std::byte> out(count * dtype_size(dtype));
  for (std::size_t at = 0; at < out.size(); at += size) {
    if (is_float(part)) {
      store_float(part, out.data() + at, 1);
    } else {
      store_integer(part, out.data() + at, 1);
    }
  }
  return out;
}

std::vector<std::byte> plain_reduce(DType dtype, ReduceOp op,
                                    const std::vector<std::vector<std::byte>>& inputs,
                                    const std::vector<double>& factors) {
  const DType part = part_type(dtype);
  const std::size_t size = dtype_size(part);
  std::vector<std::byte> out(inputs[0].size());
  if (is_complex(dtype) && op == ReduceOp::kProduct) {
    for (std::size_t at = 0; at < out.size(); at += 2 * size)
      multiply_complex(part, size, inputs, at, out.data() + at);
    return out;
  }
  std::vector<double> floats(inputs.size());
  std::vector<std::int64_t> integers(inputs.size());
  for (std::size_t at = 0; at < out.size(); at += size) {
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      if (is_float(part)) {
        floats[i] = read_element(part, inputs[i].data() + at);
      } else {
        integers[i] = read_integer(part, inputs[i].data() + at);
      }
    }
    if (is_float(part)) {
      store_float(part, out.data() + at, reduce_floats(op, part, floats, factors));
    } else {
      store_integer(part, out.data() + at, reduce_integers(op, part == DType::kBool, integers));
    }
  }
  return out;
}

std::size_t count_differences(DType dtype, const std::vector<std::byte>& a, const std::vector<std::byte>& b) {
  const DType part = part_type(dtype);
  const std::size_t size = dtype_size(part);
  std::size_t differences = 0;
  for (std::size_t at = 0; at < a.size(); at += size) {
    if (std::memcmp(a.data() + at, b.data() + at, size) == 0) continue;
    const bool both_nan = is_float(part) && std::isnan(read_element(part, a.data() + at)) &&
                          std::isnan(read_element(part, b.data() + at));
    if (!both_nan) ++differences;
  }
  return differences;
}

}  // namespace neuron
