// Every kernel of every instruction set that this machine has: against plain arithmetic on exact values, and
// bit for bit against the scalar kernels on any values, over lengths around the vector and block sizes,
// misaligned, in place.
#include "engine/collectives/reduce/reduce.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "engine/testing/exact_values.h"

namespace neuron {
namespace {

using Bytes = std::vector<std::byte>;

constexpr std::size_t kLengths[] = {0, 1, 3, 8, 15, 16, 17, 31, 33, 63, 64, 65, 127, 130, 2048, 2049, 5000};

template <typename Body>
void for_each_kernel(SimdLevel level, const Body& body) {
  for (const DType dtype : all_dtypes()) {
    for (const ReduceOp op : all_reduce_ops()) {
      if (const ReduceKernel kernel = find_reduce_kernel(dtype, op, level)) body(dtype, op, kernel);
    }
  }
}

std::string label(SimdLevel level, DType dtype, ReduceOp op, std::size_t count) {
  return std::string(simd_level_name(level)) + " " + dtype_name(dtype) + " " + reduce_op_name(op) +
         " count " + std::to_string(count);
}

// The result that all `outputs` of a call get; the first `in_place` outputs are inputs. `shift` bytes of
// misalignment.
Bytes reduce(ReduceKernel kernel, const std::vector<Bytes>& inputs, std::size_t element, std::size_t outputs,
             std::size_t in_place, std::size_t shift, const std::vector<double>& factors) {
  const std::size_t nbytes = inputs[0].size();
  std::vector<Bytes> memory;
  for (const Bytes& input : inputs) {
    memory.emplace_back(nbytes + shift + 1, std::byte{0xCC});
    if (nbytes != 0) std::memcpy(memory.back().data() + shift, input.data(), nbytes);
  }
  std::vector<Bytes> fresh(outputs - in_place, Bytes(nbytes + shift + 1, std::byte{0xCC}));
  std::vector<const std::byte*> in;
  std::vector<std::byte*> out;
  for (Bytes& bytes : memory) in.push_back(bytes.data() + shift);
  for (std::size_t i = 0; i < in_place; ++i) out.push_back(memory[i].data() + shift);
  for (Bytes& bytes : fresh) out.push_back(bytes.data() + shift);
  kernel({.inputs = in.data(),
          .input_count = in.size(),
          .outputs = out.data(),
          .output_count = out.size(),
          .count = nbytes / element,
          .factors = factors.data()});
  const Bytes result(out[0], out[0] + nbytes);
  for (std::byte* other : out) {
    EXPECT_TRUE(nbytes == 0 || std::memcmp(other, result.data(), nbytes) == 0)
        << "the outputs are not the same";
    EXPECT_EQ(other[nbytes], std::byte{0xCC}) << "a write behind the output";
  }
  return result;
}

class ReduceTest : public testing::TestWithParam<SimdLevel> {};

TEST_P(ReduceTest, ExactValuesEqualPlainArithmetic) {
  for_each_kernel(GetParam(), [&](DType dtype, ReduceOp op, ReduceKernel kernel) {
    for (const std::size_t count : kLengths) {
      for (const std::size_t n : {1U, 2U, 3U, 4U, 5U, 9U}) {
        std::vector<Bytes> inputs;
        std::vector<double> factors;
        for (std::size_t i = 0; i < n; ++i) {
          inputs.push_back(exact_values(dtype, op, count, i));
          factors.push_back(i % 2 == 0 ? 0.5 : 3);
        }
        const Bytes expected = plain_reduce(dtype, op, inputs, factors);
        const std::size_t element = dtype_size(dtype);
        EXPECT_EQ(reduce(kernel, inputs, element, 1, 0, 0, factors), expected)
            << label(GetParam(), dtype, op, count) << " of " << n;
        EXPECT_EQ(reduce(kernel, inputs, element, n, n, element, factors), expected)
            << label(GetParam(), dtype, op, count) << " of " << n << " in place, misaligned";
      }
    }
  });
}

// Not exact, infinities, NaN and subnormals among them: the scalar kernel is the specification.
TEST_P(ReduceTest, AnyValuesEqualTheScalarKernel) {
  for_each_kernel(GetParam(), [&](DType dtype, ReduceOp op, ReduceKernel kernel) {
    const ReduceKernel scalar = find_reduce_kernel(dtype, op, SimdLevel::kScalar);
    for (const std::size_t count : {65U, 5000U}) {
      for (const std::size_t n : {2U, 5U}) {
        std::vector<Bytes> inputs;
        std::vector<double> factors;
        for (std::size_t i = 0; i < n; ++i) {
          inputs.push_back(any_bytes(dtype, count, i));
          factors.push_back(1.0 / static_cast<double>(i + 3));
        }
        const std::size_t element = dtype_size(dtype);
        const Bytes expected = reduce(scalar, inputs, element, 1, 0, 0, factors);
        const Bytes got = reduce(kernel, inputs, element, 2, 1, 0, factors);
        ASSERT_EQ(got.size(), expected.size());
        EXPECT_EQ(count_differences(dtype, got, expected), 0U)
            << label(GetParam(), dtype, op, count) << " of " << n;
      }
    }
  });
}

template <typename T>
Bytes bytes_of(const std::vector<T>& values) {
  Bytes out(values.size() * sizeof(T));
  std::memcpy(out.data(), values.data(), out.size());
  return out;
}

template <typename T>
std::vector<T> run(DType dtype, ReduceOp op, SimdLevel level, const std::vector<std::vector<T>>& inputs) {
  std::vector<Bytes> bytes;
  for (const auto& input : inputs) bytes.push_back(bytes_of(input));
  const Bytes result = reduce(find_reduce_kernel(dtype, op, level), bytes, sizeof(T), 1, 0, 0,
                              std::vector<double>(inputs.size(), 1));
  std::vector<T> out(result.size() / sizeof(T));
  std::memcpy(out.data(), result.data(), result.size());
  return out;
}

TEST_P(ReduceTest, IntegersKeepTheirTypeAndWrapAround) {
  const std::int64_t big = (std::int64_t{1} << 53) + 1;
  const std::int64_t low = std::numeric_limits<std::int64_t>::min();
  using Wide = std::vector<std::int64_t>;
  EXPECT_EQ(
      run<std::int64_t>(DType::kInt64, ReduceOp::kMax, GetParam(), {Wide{-1, big, low}, Wide{-2, 0, low}}),
      (Wide{-1, big, low}));
  EXPECT_EQ(run<std::int64_t>(DType::kInt64, ReduceOp::kSum, GetParam(), {Wide{low, big}, Wide{-1, big}}),
            (Wide{std::numeric_limits<std::int64_t>::max(), 2 * big}));
  using Narrow = std::vector<std::int8_t>;
  EXPECT_EQ(
      run<std::int8_t>(DType::kInt8, ReduceOp::kProduct, GetParam(), {Narrow{100, -128}, Narrow{3, -1}}),
      (Narrow{44, -128}));
  EXPECT_EQ(run<std::int8_t>(DType::kInt8, ReduceOp::kAvg, GetParam(), {Narrow{-3, 5}, Narrow{0, 2}}),
            (Narrow{-1, 3}));
  using Unsigned = std::vector<std::uint64_t>;
  EXPECT_EQ(
      run<std::uint64_t>(DType::kUint64, ReduceOp::kMax, GetParam(), {Unsigned{~0UL, 1}, Unsigned{0, 2}}),
      (Unsigned{~0UL, 2}));
  using Short = std::vector<std::uint16_t>;
  EXPECT_EQ(run<std::uint16_t>(DType::kUint16, ReduceOp::kProduct, GetParam(), {Short{65535}, Short{65535}}),
            Short{1});
}

TEST_P(ReduceTest, MinAndMaxPropagateNan) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const ReduceOp op : {ReduceOp::kMin, ReduceOp::kMax}) {
    const auto result = run<float>(DType::kFloat32, op, GetParam(), {{nan, 1, 2}, {1, nan, 3}, {5, 6, 2.5}});
    EXPECT_TRUE(std::isnan(result[0]));
    EXPECT_TRUE(std::isnan(result[1]));
    EXPECT_EQ(result[2], op == ReduceOp::kMin ? 2 : 3);
  }
}

TEST_P(ReduceTest, BoolFollowsAndAndOr) {
  using Bools = std::vector<std::uint8_t>;
  const std::vector<Bools> inputs{{0, 1, 2, 1}, {0, 0, 255, 1}};  // anything but zero is true
  for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kMax, ReduceOp::kBor})
    EXPECT_EQ(run<std::uint8_t>(DType::kBool, op, GetParam(), inputs), (Bools{0, 1, 1, 1}));
  for (const ReduceOp op : {ReduceOp::kProduct, ReduceOp::kMin, ReduceOp::kBand})
    EXPECT_EQ(run<std::uint8_t>(DType::kBool, op, GetParam(), inputs), (Bools{0, 0, 1, 1}));
  EXPECT_EQ(run<std::uint8_t>(DType::kBool, ReduceOp::kBxor, GetParam(), inputs), (Bools{0, 1, 0, 0}));
}

// 2048 + 1 + 1 in fp16 steps would stay 2048; summed in fp32 and rounded once it is 2050.
TEST_P(ReduceTest, NarrowFloatsAreRoundedOnceAfterTheLastRank) {
  using Bits = std::vector<std::uint16_t>;
  EXPECT_EQ(run<std::uint16_t>(DType::kFloat16, ReduceOp::kSum, GetParam(), {{0x6800}, {0x3C00}, {0x3C00}}),
            Bits{0x6801});
  // bf16: 256 + 1 + 1 = 258.
  EXPECT_EQ(run<std::uint16_t>(DType::kBFloat16, ReduceOp::kSum, GetParam(), {{0x4380}, {0x3F80}, {0x3F80}}),
            Bits{0x4381});
  // e4m3: 0.5 + 2 = 2.5.
  EXPECT_EQ(run<std::uint8_t>(DType::kFloat8E4M3, ReduceOp::kSum, GetParam(), {{0x30}, {0x40}}),
            std::vector<std::uint8_t>{0x42});
}

INSTANTIATE_TEST_SUITE_P(Simd, ReduceTest, testing::ValuesIn(available_simd_levels()),
                         [](const auto& instance) { return simd_level_name(instance.param); });

TEST(ReduceTableTest, WhatADtypeDoesNotHaveIsNull) {
  EXPECT_EQ(find_reduce_kernel(DType::kFloat32, ReduceOp::kBand), nullptr);
  EXPECT_EQ(find_reduce_kernel(DType::kComplex64, ReduceOp::kMax), nullptr);
  EXPECT_EQ(find_reduce_kernel(DType::kInt32, ReduceOp::kPremulSum), nullptr);
  EXPECT_EQ(find_reduce_kernel(DType::kBool, ReduceOp::kAvg), nullptr);
  for (const ReduceOp op : all_reduce_ops()) EXPECT_EQ(find_reduce_kernel(DType::kFloat8E8M0, op), nullptr);
}

TEST(CpuFeaturesTest, ALevelThatTheMachineHasNotIsAnError) {
  const SimdLevel best = available_simd_levels().back();
  EXPECT_EQ(choose_simd_level(SimdChoice::kAuto).value(), best);
  EXPECT_EQ(choose_simd_level(SimdChoice::kScalar).value(), SimdLevel::kScalar);
  const auto widest = choose_simd_level(SimdChoice::kAvx512);
  if (best == SimdLevel::kAvx512) {
    EXPECT_EQ(widest.value(), SimdLevel::kAvx512);
  } else {
    EXPECT_EQ(widest.status().code(), StatusCode::kInvalidArgument);
  }
}

}  // namespace
}  // namespace neuron
