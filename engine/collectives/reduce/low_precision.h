// Conversions between fp32 and the narrow float types, element by element, bit for bit as PyTorch's.
//
// Internal linkage on purpose: the file is compiled once for each instruction set, and the linker must not
// pick one set's version for all. The forms without branches let the compiler vectorize the loops around
// them.
#pragma once

#include <cstdint>
#include <cstring>

namespace neuron {
namespace {

inline float float_of_bits(std::uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

inline std::uint32_t bits_of_float(float value) {
  std::uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

inline float bf16_to_float(std::uint16_t x) { return float_of_bits(std::uint32_t{x} << 16); }

// Round to nearest even; every NaN becomes 0x7FC0. The result is in the upper half, below it are leftovers.
inline std::uint32_t float_to_upper_bf16(float value) {
  const std::uint32_t bits = bits_of_float(value);
  return value != value ? 0x7FC00000u : bits + 0x7FFFu + ((bits >> 16) & 1u);
}
inline std::uint16_t float_to_bf16(float value) {
  return static_cast<std::uint16_t>(float_to_upper_bf16(value) >> 16);
}

inline float fp16_to_float(std::uint16_t x) {
  const std::uint32_t magnitude = (std::uint32_t{x} & 0x7FFFu) << 13;
  // Multiplying by 2^112 corrects the exponent's bias and normalizes subnormals in one step.
  std::uint32_t bits = bits_of_float(float_of_bits(magnitude) * float_of_bits(0x77800000u));
  bits |= magnitude >= 0x0F800000u ? 0x7F800000u : 0u;  // infinity, NaN
  return float_of_bits(bits | (std::uint32_t{x} & 0x8000u) << 16);
}

// Round to nearest even, overflow to infinity; NaN keeps its upper mantissa bits and becomes quiet (as the
// F16C instruction).
inline std::uint16_t float_to_fp16(float value) {
  const std::uint32_t bits = bits_of_float(value);
  const std::uint32_t sign = (bits >> 16) & 0x8000u;
  const std::uint32_t magnitude = bits & 0x7FFFFFFFu;
  const std::uint32_t normal = (magnitude - 0x38000000u + 0xFFFu + ((magnitude >> 13) & 1u)) >> 13;
  // Adding 0.5 puts the subnormal's unit at the last bit of the sum, so the addition does the rounding.
  const std::uint32_t subnormal = bits_of_float(float_of_bits(magnitude) + 0.5f) - 0x3F000000u;
  std::uint32_t result = magnitude < 0x38800000u ? subnormal : normal;
  result = magnitude >= 0x47800000u ? 0x7C00u : result;
  result = magnitude > 0x7F800000u ? (0x7E00u | ((magnitude >> 13) & 0x3FFu)) : result;
  return static_cast<std::uint16_t>(result | sign);
}

// A format of 8 bits: sign, exponent, kMantissa bits of mantissa. kFnuz: no infinity, no negative zero, NaN
// is 0x80. kFinite ("fn"): no infinity, NaN is all ones, overflow saturates. Otherwise IEEE-like, overflow to
// infinity.
template <int kMantissaBits, int kExponentBias, bool kFiniteOnly, bool kUnsignedZero>
struct Float8Format {
  static constexpr std::uint32_t kMantissa = kMantissaBits;
  static constexpr std::uint32_t kBias = kExponentBias;
  static constexpr bool kFinite = kFiniteOnly;
  static constexpr bool kFnuz = kUnsignedZero;
};
using E4M3Fn = Float8Format<3, 7, true, false>;
using E5M2 = Float8Format<2, 15, false, false>;
using E4M3Fnuz = Float8Format<3, 8, false, true>;
using E5M2Fnuz = Float8Format<2, 16, false, true>;

template <typename Format>
inline float float8_to_float(std::uint8_t x) {
  constexpr std::uint32_t kMantissa = Format::kMantissa;
  const std::uint32_t sign = std::uint32_t{x} >> 7 << 31;
  const std::uint32_t magnitude = std::uint32_t{x} & 0x7Fu;
  if (Format::kFnuz && x == 0x80) return float_of_bits(0x7F800001u);
  if (Format::kFinite && magnitude == 0x7F) return float_of_bits(sign | 0x7FF00000u);
  if (!Format::kFnuz && !Format::kFinite && (magnitude >> kMantissa) == 0x1F)
    return float_of_bits(sign | 0x7F800000u | (magnitude & ((1u << kMantissa) - 1)) << (23 - kMantissa));
  // The bits as a tiny fp32 number, scaled by an exact power of two: right for subnormals too.
  const float scale = float_of_bits((254u - Format::kBias) << 23);
  return float_of_bits(sign | bits_of_float(float_of_bits(magnitude << (23 - kMantissa)) * scale));
}

template <typename Format>
inline std::uint8_t float_to_float8(float value) {
  constexpr std::uint32_t kMantissa = Format::kMantissa;
  constexpr std::uint32_t kShift = 23 - kMantissa;
  // First magnitude that no longer fits the format's bits.
  constexpr std::uint32_t kOverflow = Format::kFinite ? 1087u << 20
                                      : Format::kFnuz ? (kMantissa == 3 ? 0x87u : 0x8Fu) << 23
                                                      : 143u << 23;
  constexpr std::uint32_t kDenormal = (127u - Format::kBias + kShift + 1) << 23;
  constexpr std::uint32_t kSmallestNormal = (128u - Format::kBias) << 23;
  const std::uint32_t bits = bits_of_float(value);
  const std::uint32_t sign = (bits >> 24) & 0x80u;
  const std::uint32_t magnitude = bits & 0x7FFFFFFFu;
  const std::uint32_t normal = (magnitude - ((127u - Format::kBias) << 23) + ((1u << (kShift - 1)) - 1) +
                                ((magnitude >> kShift) & 1u)) >>
                               kShift;
  const std::uint32_t subnormal =
      bits_of_float(float_of_bits(magnitude) + float_of_bits(kDenormal)) - kDenormal;
  std::uint32_t result = (magnitude < kSmallestNormal ? subnormal : normal) & 0xFFu;
  if (Format::kFnuz) {
    result = result == 0 ? 0u : (result | sign);
    return static_cast<std::uint8_t>(magnitude >= kOverflow ? 0x80u : result);
  }
  if (Format::kFinite) {
    result = magnitude >= kOverflow || result == 0x7Fu ? 0x7Eu : result;
    result = magnitude > 0x7F800000u ? 0x7Fu : result;
  } else {
    result = magnitude >= kOverflow ? 0x7Cu : result;
    result = magnitude > 0x7F800000u ? 0x7Fu : result;
  }
  return static_cast<std::uint8_t>(result | sign);
}

}  // namespace
}  // namespace neuron
