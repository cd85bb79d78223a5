// Operations of the reduction kernels, on accumulators: apply() for each further input, finish() at the end.
//
// Internal linkage: see low_precision.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace neuron {
namespace {

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

}  // namespace
}  // namespace neuron
