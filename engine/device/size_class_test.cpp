#include "engine/device/size_class.h"

#include <gtest/gtest.h>

namespace neuron {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;

TEST(SizeClassTest, RoundsToAtLeast256Bytes) {
  EXPECT_EQ(block_size(0), 256U);
  EXPECT_EQ(block_size(1), 256U);
  EXPECT_EQ(block_size(256), 256U);
  EXPECT_EQ(block_size(257), 512U);
  EXPECT_EQ(block_size(2048), 2048U);
  EXPECT_EQ(block_size(2049), 2304U);
}

TEST(SizeClassTest, LargeRequestsAreRoundedTo512Only) {
  EXPECT_EQ(block_size(16 * kMiB - 1), 16 * kMiB);
  EXPECT_EQ(block_size(16 * kMiB + 1), 16 * kMiB + 512);
  EXPECT_EQ(block_size(100 * kMiB), 100 * kMiB);
}

TEST(SizeClassTest, EveryBlockFitsItsRequestWastesAnEighthAtMostAndIsAligned) {
  for (std::size_t requested = 1; requested < 20 * kMiB; requested += 1 + requested / 97) {
    const std::size_t nbytes = block_size(requested);
    ASSERT_GE(nbytes, requested);
    ASSERT_LT(nbytes, requested + requested / 8 + 256);
    ASSERT_EQ(nbytes % 256, 0U);
    ASSERT_EQ(block_size(nbytes), nbytes);
  }
}

TEST(SizeClassTest, ClassesFollowSizes) {
  std::size_t previous = size_class(256);
  EXPECT_EQ(previous, 0U);
  for (std::size_t nbytes = 512; nbytes < (std::size_t{1} << 39); nbytes += 256 * (1 + nbytes / 8192)) {
    const std::size_t index = size_class(nbytes);
    ASSERT_GE(index, previous);
    ASSERT_LE(index, previous + 1);
    previous = index;
  }
  EXPECT_LT(previous, kSizeClasses);
}

// What find() relies on: a request below 16 MiB is the smallest size of its class.
TEST(SizeClassTest, RoundedRequestsStartTheirClass) {
  for (std::size_t requested = 257; requested < 16 * kMiB; requested += 1 + requested / 31) {
    const std::size_t nbytes = block_size(requested);
    ASSERT_LT(size_class(nbytes - 256), size_class(nbytes)) << nbytes;
  }
}

}  // namespace
}  // namespace neuron
