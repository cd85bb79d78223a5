#include "engine/nccom_test/sizes.h"

#include <gtest/gtest.h>

namespace neuron::nccom_test {
namespace {

using Counts = std::vector<std::size_t>;

Options bytes(std::size_t least, std::size_t most, DType dtype = DType::kUint8) {
  Options options;
  options.workers = 4;
  options.min_bytes = least;
  options.max_bytes = most;
  options.dtype = dtype;
  return options;
}

TEST(SizesTest, StepsAndFactors) {
  Options options = bytes(8, 16);
  options.step_bytes = 4;
  EXPECT_EQ(part_counts(options, Operation::kAllReduce), (Counts{8, 12, 16}));
  options = bytes(8, 40);
  options.step_factor = 2;
  EXPECT_EQ(part_counts(options, Operation::kAllReduce), (Counts{8, 16, 32}));
}

TEST(SizesTest, ATenthOfTheRangeByDefault) {
  EXPECT_EQ(part_counts(bytes(100, 200), Operation::kAllReduce).size(), 11U);
  EXPECT_EQ(part_counts(bytes(64, 64), Operation::kAllReduce), (Counts{64}));
  EXPECT_EQ(part_counts(bytes(1, 3), Operation::kAllReduce), (Counts{1, 2, 3}));
}

TEST(SizesTest, WholeElementsForEachRankAndNoRowTwice) {
  Options options = bytes(8, 64, DType::kFloat32);
  options.step_factor = 2;
  EXPECT_EQ(part_counts(options, Operation::kAllGather), (Counts{1, 2, 4}));
  EXPECT_EQ(part_counts(options, Operation::kSendReceive), (Counts{2, 4, 8, 16}));
}

TEST(SizesTest, AnEnormousFactorEnds) {
  Options options = bytes(1, std::size_t{1} << 46);
  options.step_factor = std::size_t{1} << 46;
  EXPECT_EQ(part_counts(options, Operation::kBroadcast), (Counts{1, std::size_t{1} << 46}));
}

}  // namespace
}  // namespace neuron::nccom_test
