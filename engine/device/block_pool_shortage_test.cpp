// What happens when device memory runs out: wait, empty the cache, retry, and then an error with a table.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "engine/testing/device_fixtures.h"
#include "engine/testing/gate.h"

namespace neuron {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;

class ShortageTest : public ::testing::Test {
 protected:
  std::unique_ptr<Core> core_ = make_test_core(64 * kMiB);
  BlockPool& pool_ = core_->pool();
  Stream& stream_ = core_->default_stream();
  Stream& side_ = core_->acquire_stream(0);
};

TEST_F(ShortageTest, TheErrorIsATableThatNamesTheBound) {
  Block* block = pool_.allocate(40 * kMiB, stream_).value();
  const auto refused = pool_.allocate(30 * kMiB, stream_);
  ASSERT_FALSE(refused.is_ok());
  EXPECT_EQ(refused.status().code(), StatusCode::kOutOfMemory);
  const std::string text = refused.status().message();
  EXPECT_TRUE(text.starts_with("Failed to allocate 0.029GB (alignment: none, usage: tensors) on neuron:0"))
      << text;
  for (const char* part : {"emulated", "the core's memory limit", "requested", "31457280 B", "allocated",
                           "41943040 B", "reserved", "cached", "total", "67108864 B"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << " in " << text;
  }
  const MemoryStats stats = pool_.stats();
  EXPECT_EQ(stats.ooms, 1U);
  EXPECT_EQ(stats.alloc_retries, 1U);
  pool_.free(block);
}

TEST_F(ShortageTest, TheCoreStaysUsable) {
  std::vector<Block*> blocks;
  for (;;) {
    auto block = pool_.allocate(10 * kMiB, stream_);
    if (!block.is_ok()) break;
    blocks.push_back(block.value());
  }
  EXPECT_EQ(blocks.size(), 6U);
  for (Block* block : blocks) pool_.free(block);
  auto large = pool_.allocate(60 * kMiB, stream_);
  ASSERT_TRUE(large.is_ok()) << large.status().message();
  pool_.free(large.value());
}

TEST_F(ShortageTest, TheWholeMemoryCanBeOneBlock) {
  auto whole = pool_.allocate(64 * kMiB, stream_);
  ASSERT_TRUE(whole.is_ok());
  EXPECT_FALSE(pool_.allocate(1, stream_).is_ok());
  pool_.free(whole.value());
  EXPECT_FALSE(pool_.allocate(64 * kMiB + 1, stream_).is_ok());
  EXPECT_FALSE(pool_.allocate(~std::size_t{0}, stream_).is_ok());
}

TEST_F(ShortageTest, ASmallRequestGetsAPieceOfALargeSegment) {
  std::vector<Block*> blocks;
  for (;;) {
    auto block = pool_.allocate(4 * kMiB, stream_);
    if (!block.is_ok()) break;
    blocks.push_back(block.value());
  }
  pool_.free(blocks.back());
  blocks.pop_back();
  auto small = pool_.allocate(1, stream_);
  ASSERT_TRUE(small.is_ok()) << small.status().message();
  blocks.push_back(small.value());
  for (Block* block : blocks) pool_.free(block);
  EXPECT_TRUE(pool_.allocate(64 * kMiB, stream_).is_ok());
}

TEST_F(ShortageTest, TheCacheOfOtherStreamsIsEmptiedFirst) {
  Block* block = pool_.allocate(50 * kMiB, side_).value();
  pool_.free(block);
  auto more = pool_.allocate(50 * kMiB, stream_);
  ASSERT_TRUE(more.is_ok()) << more.status().message();
  EXPECT_EQ(pool_.stats().alloc_retries, 1U);
  EXPECT_EQ(pool_.stats().ooms, 0U);
}

TEST_F(ShortageTest, BlocksThatOthersKeepAreWaitedFor) {
  Gate gate;
  Block* block = pool_.allocate(50 * kMiB, stream_).value();
  pool_.add_use(block, side_, side_.submit(gate.command()));
  pool_.free(block);
  // The gate opens when something has been asked for that needs the block.
  Stream& opener = core_->acquire_stream(0);
  submit(opener, [&] {
    while (pool_.stats().alloc_retries == 0) std::this_thread::yield();
    gate.open();
  });
  auto again = pool_.allocate(50 * kMiB, stream_);
  EXPECT_TRUE(again.is_ok()) << again.status().message();
}

TEST_F(ShortageTest, ACommandDoesNotWaitForItsOwnStream) {
  StatusCode code = StatusCode::kOk;
  submit(stream_, [&] {
    Block* block = pool_.allocate(50 * kMiB, side_).value();
    // The stream itself uses it, at a position that it reaches only after this command.
    pool_.add_use(block, stream_, stream_.submitted());
    pool_.free(block);
    code = pool_.allocate(50 * kMiB, side_).status().code();
  });
  EXPECT_EQ(stream_.synchronize(), nullptr);
  EXPECT_EQ(code, StatusCode::kOutOfMemory);
}

TEST_F(ShortageTest, PiecesThatAreTooSmallAreNamed) {
  std::vector<Block*> blocks;
  for (int i = 0; i < 4; ++i) blocks.push_back(pool_.allocate(16 * kMiB, stream_).value());
  pool_.free(blocks[0]);
  pool_.free(blocks[2]);
  const auto refused = pool_.allocate(30 * kMiB, stream_);
  ASSERT_FALSE(refused.is_ok());
  EXPECT_NE(refused.status().message().find("in pieces that are too small"), std::string::npos);
}

TEST(HostShortageTest, TheHostsMemoryIsABoundToo) {
  CoreOptions options;
  options.memory_limit = 64 * kMiB;
  options.host_reserve = std::uint64_t{1} << 60;
  const auto core = make_test_core(options);
  const auto refused = core->pool().allocate(kMiB, core->default_stream());
  ASSERT_FALSE(refused.is_ok());
  EXPECT_EQ(refused.status().code(), StatusCode::kOutOfMemory);
  EXPECT_NE(refused.status().message().find("NEURON_EMU_HOST_RESERVE"), std::string::npos);
  EXPECT_EQ(core->heap().committed(), 0U);
}

}  // namespace
}  // namespace neuron
