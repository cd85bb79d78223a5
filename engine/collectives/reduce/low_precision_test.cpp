// The narrow float types, over all their bit patterns.
#include "engine/collectives/reduce/low_precision.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace neuron {
namespace {

// A format as numbers: every finite pattern's value, for searching the nearest one.
template <typename Bits>
struct Format {
  float (*widen)(Bits);
  Bits (*narrow)(float);
  int patterns;
};

// Widening and narrowing again gives the same pattern (NaN: a NaN).
template <typename Bits>
void expect_round_trip(const Format<Bits>& format) {
  for (int i = 0; i < format.patterns; ++i) {
    const auto bits = static_cast<Bits>(i);
    const float value = format.widen(bits);
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(format.widen(format.narrow(value)))) << i;
    } else {
      EXPECT_EQ(format.narrow(value), bits) << i << " = " << value;
    }
  }
}

// Between two neighbours: below the middle the lower, above it the upper, at it the even one.
template <typename Bits>
void expect_nearest_even(const Format<Bits>& format, int largest) {
  for (int i = 0; i < largest; ++i) {
    const auto low = static_cast<Bits>(i);
    const auto high = static_cast<Bits>(i + 1);
    const float middle = format.widen(low) / 2 + format.widen(high) / 2;  // the sum could overflow
    const float infinity = std::numeric_limits<float>::infinity();
    EXPECT_EQ(format.narrow(middle), i % 2 == 0 ? low : high) << i;
    EXPECT_EQ(format.narrow(std::nextafter(middle, 0.0F)), low) << i;
    EXPECT_EQ(format.narrow(std::nextafter(middle, infinity)), high) << i;
  }
}

constexpr Format<std::uint16_t> kFp16{fp16_to_float, float_to_fp16, 65536};
constexpr Format<std::uint16_t> kBf16{bf16_to_float, float_to_bf16, 65536};
template <typename F>
constexpr Format<std::uint8_t> kFloat8{float8_to_float<F>, float_to_float8<F>, 256};

TEST(LowPrecisionTest, WideningAndNarrowingGivesThePatternBack) {
  expect_round_trip(kFp16);
  expect_round_trip(kBf16);
  expect_round_trip(kFloat8<E4M3Fn>);
  expect_round_trip(kFloat8<E5M2>);
  expect_round_trip(kFloat8<E4M3Fnuz>);
  expect_round_trip(kFloat8<E5M2Fnuz>);
}

TEST(LowPrecisionTest, NarrowingRoundsToNearestEven) {
  expect_nearest_even(kFp16, 0x7BFF);
  expect_nearest_even(kBf16, 0x7F7F);
  expect_nearest_even(kFloat8<E4M3Fn>, 0x7E);
  expect_nearest_even(kFloat8<E5M2>, 0x7B);
  expect_nearest_even(kFloat8<E4M3Fnuz>, 0x7F);
  expect_nearest_even(kFloat8<E5M2Fnuz>, 0x7F);
}

TEST(LowPrecisionTest, ValuesThatPyTorchDocuments) {
  EXPECT_EQ(fp16_to_float(0x7BFF), 65504.0F);
  EXPECT_EQ(fp16_to_float(0x0001), std::ldexp(1.0F, -24));
  EXPECT_EQ(bf16_to_float(0x3F80), 1.0F);
  EXPECT_EQ(float8_to_float<E4M3Fn>(0x7E), 448.0F);
  EXPECT_EQ(float8_to_float<E4M3Fn>(0x01), std::ldexp(1.0F, -9));
  EXPECT_EQ(float8_to_float<E5M2>(0x7B), 57344.0F);
  EXPECT_EQ(float8_to_float<E5M2>(0x01), std::ldexp(1.0F, -16));
  EXPECT_EQ(float8_to_float<E4M3Fnuz>(0x7F), 240.0F);
  EXPECT_EQ(float8_to_float<E5M2Fnuz>(0x7F), 57344.0F);
  EXPECT_EQ(float8_to_float<E4M3Fnuz>(0x88), -std::ldexp(1.0F, -7));
}

TEST(LowPrecisionTest, OverflowAndSpecialValues) {
  const float infinity = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(float_to_fp16(65520.0F), 0x7C00);
  EXPECT_EQ(float_to_fp16(-infinity), 0xFC00);
  EXPECT_EQ(float_to_fp16(nan) & 0x7E00, 0x7E00);
  EXPECT_EQ(float_to_bf16(nan), 0x7FC0);
  EXPECT_EQ(float_to_float8<E4M3Fn>(1e9F), 0x7E);  // saturates
  EXPECT_EQ(float_to_float8<E4M3Fn>(-infinity), 0xFE);
  EXPECT_EQ(float_to_float8<E4M3Fn>(nan), 0x7F);
  EXPECT_EQ(float_to_float8<E5M2>(1e9F), 0x7C);
  EXPECT_EQ(float_to_float8<E5M2>(-nan) & 0x7F, 0x7F);
  EXPECT_EQ(float_to_float8<E4M3Fnuz>(1e9F), 0x80);
  EXPECT_EQ(float_to_float8<E5M2Fnuz>(nan), 0x80);
  EXPECT_EQ(float_to_float8<E4M3Fnuz>(-0.0F), 0x00);  // no negative zero
  EXPECT_EQ(float_to_float8<E4M3Fn>(-0.0F), 0x80);
  EXPECT_TRUE(std::isnan(float8_to_float<E4M3Fnuz>(0x80)));
  EXPECT_TRUE(std::isnan(float8_to_float<E4M3Fn>(0xFF)));
  EXPECT_TRUE(std::isinf(float8_to_float<E5M2>(0xFC)));
}

}  // namespace
}  // namespace neuron
