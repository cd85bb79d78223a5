#include "engine/device/block_pool.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <random>
#include <set>
#include <thread>
#include <vector>

#include "engine/base/check.h"
#include "engine/testing/device_fixtures.h"
#include "engine/testing/gate.h"

namespace neuron {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;

class BlockPoolTest : public ::testing::Test {
 protected:
  Block* take(std::size_t nbytes, Stream& stream) {
    auto block = pool_.allocate(nbytes, stream);
    EXPECT_TRUE(block.is_ok()) << block.status().message();
    return block.is_ok() ? block.value() : nullptr;
  }
  Block* take(std::size_t nbytes) { return take(nbytes, stream_); }

  std::unique_ptr<Core> core_ = make_test_core(64 * kMiB);
  BlockPool& pool_ = core_->pool();
  Stream& stream_ = core_->default_stream();
  Stream& side_ = core_->acquire_stream(0);
};

TEST_F(BlockPoolTest, BlocksAreRoundedAlignedAndWritable) {
  Block* block = take(1000);
  EXPECT_EQ(block->requested, 1000U);
  EXPECT_EQ(block->nbytes, 1024U);
  EXPECT_EQ(block->stream, &stream_);
  EXPECT_EQ(block->pool, &pool_);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(block->data) % 256, 0U);
  EXPECT_TRUE(core_->heap().contains(block->data));
  std::memset(block->data, 1, block->nbytes);
  pool_.free(block);
}

TEST_F(BlockPoolTest, NothingIsABlockOfTheSmallestClass) {
  Block* block = take(0);
  EXPECT_EQ(block->requested, 0U);
  EXPECT_EQ(block->nbytes, 256U);
  pool_.free(block);
}

TEST_F(BlockPoolTest, SmallAndLargeRequestsHaveTheirOwnSegments) {
  Block* small = take(kMiB - 1);
  EXPECT_EQ(pool_.stats().reserved_bytes.current, 2 * kMiB);
  Block* large = take(kMiB);
  EXPECT_EQ(pool_.stats().segments.current, 2U);
  EXPECT_EQ(pool_.stats().reserved_bytes.current, 34 * kMiB);
  // Pages come with blocks, not with segments.
  EXPECT_EQ(core_->heap().committed(), 4 * kMiB);
  pool_.free(small);
  pool_.free(large);
}

TEST_F(BlockPoolTest, TheStreamReusesAFreedBlockAtOnce) {
  Gate gate;
  Block* first = take(4096);
  std::byte* const data = first->data;
  stream_.submit(gate.command());  // work on the block is still to run
  pool_.free(first);
  Block* second = take(4096);
  EXPECT_EQ(second->data, data);
  gate.open();
  pool_.free(second);
}

TEST_F(BlockPoolTest, AnotherStreamDoesNotGetIt) {
  Block* first = take(4096);
  std::byte* const data = first->data;
  pool_.free(first);
  Block* other = take(4096, side_);
  EXPECT_NE(other->data, data);
  pool_.free(other);
}

TEST_F(BlockPoolTest, AUseByAnotherStreamKeepsAFreedBlock) {
  Gate gate;
  Block* block = take(4096);
  std::byte* const data = block->data;
  const StreamPosition use = side_.submit(gate.command());
  pool_.add_use(block, side_, use);
  pool_.free(block);
  EXPECT_EQ(pool_.stats().allocated_bytes.current, 0U);
  EXPECT_EQ(pool_.stats().kept_bytes.current, 4096U);
  Block* meanwhile = take(4096);
  EXPECT_NE(meanwhile->data, data);
  gate.open();
  ASSERT_TRUE(side_.wait_until(use).is_ok());
  EXPECT_EQ(pool_.stats().kept_bytes.current, 0U);
  Block* after = take(4096);
  EXPECT_EQ(after->data, data);
  pool_.free(meanwhile);
  pool_.free(after);
  EXPECT_EQ(pool_.stats().kept_bytes.current, 0U);
}

TEST_F(BlockPoolTest, AStreamThatWaitsForTheOtherUserReusesTheBlockAtOnce) {
  Gate gate;
  Block* freed_after = take(4096);
  Block* freed_before = take(4096);
  const StreamPosition use = side_.submit(gate.command());
  for (Block* block : {freed_after, freed_before}) pool_.add_use(block, side_, use);
  std::byte* const first = freed_before->data;
  pool_.free(freed_before);
  EXPECT_EQ(pool_.stats().kept_bytes.current, 4096U);
  stream_.wait_for(side_, use);
  std::byte* const second = freed_after->data;
  pool_.free(freed_after);
  Block* one = take(4096);
  Block* other = take(4096);
  EXPECT_EQ((std::set<std::byte*>{one->data, other->data}), (std::set<std::byte*>{first, second}));
  EXPECT_EQ(pool_.stats().kept_bytes.current, 0U);
  // Not for the system: the wait, and so the use, is still to come.
  pool_.free(one);
  pool_.free(other);
  EXPECT_FALSE(stream_.reached(stream_.submitted()));
  gate.open();
  pool_.empty_cache();
  EXPECT_EQ(pool_.stats().reserved_bytes.current, 0U);
  EXPECT_TRUE(side_.reached(use));
}

TEST_F(BlockPoolTest, WaitsChain) {
  Gate gate;
  Stream& between = core_->acquire_stream(0);
  const StreamPosition use = side_.submit(gate.command());
  const StreamPosition before = between.submit(gate.command());
  between.wait_for(side_, use);
  stream_.wait_for(between, before);
  EXPECT_FALSE(stream_.runs_after(side_, use));  // that wait of `between` comes later
  Block* block = take(4096);
  std::byte* const data = block->data;
  pool_.add_use(block, side_, use);
  pool_.free(block);
  stream_.wait_for(between, between.submitted());
  EXPECT_TRUE(stream_.runs_after(side_, use));
  const StreamPosition later = side_.submit(gate.command());
  EXPECT_FALSE(stream_.runs_after(side_, later));
  Block* again = take(4096);
  EXPECT_EQ(again->data, data);
  pool_.free(again);
  gate.open();
}

TEST_F(BlockPoolTest, TheLastOfSeveralUsesDecides) {
  Gate early;
  Gate late;
  Stream& third = core_->acquire_stream(0);
  Block* block = take(4096);
  std::byte* const data = block->data;
  const StreamPosition first = side_.submit(early.command());
  const StreamPosition second = side_.submit(late.command());
  pool_.add_use(block, side_, second);
  pool_.add_use(block, side_, first);  // an older use does not shorten it
  pool_.add_use(block, third, third.submitted());
  pool_.add_use(block, stream_, stream_.submitted());
  pool_.free(block);
  early.open();
  ASSERT_TRUE(side_.wait_until(first).is_ok());
  Block* meanwhile = take(4096);
  EXPECT_NE(meanwhile->data, data);
  late.open();
  ASSERT_TRUE(side_.wait_until(second).is_ok());
  Block* after = take(4096);
  EXPECT_EQ(after->data, data);
}

TEST_F(BlockPoolTest, FreeNeighboursAreMerged) {
  std::vector<Block*> blocks;
  for (int i = 0; i < 8; ++i) blocks.push_back(take(256 * 1024));  // one segment, full
  EXPECT_EQ(pool_.stats().segments.current, 1U);
  std::byte* const first = blocks.front()->data;
  for (const int i : {1, 3, 0, 2, 5, 4, 7, 6}) pool_.free(blocks[static_cast<std::size_t>(i)]);
  Block* whole = take(kMiB - 1);
  EXPECT_EQ(whole->data, first);
  pool_.free(whole);
  EXPECT_EQ(pool_.stats().segments.current, 1U);
}

TEST_F(BlockPoolTest, StatisticsCountAndPeak) {
  Block* first = take(1000);
  Block* second = take(3 * kMiB);
  MemoryStats stats = pool_.stats();
  EXPECT_EQ(stats.requested_bytes.current, 1000 + 3 * kMiB);
  EXPECT_EQ(stats.allocated_bytes.current, 1024 + 3 * kMiB);
  EXPECT_EQ(stats.blocks.current, 2U);
  EXPECT_EQ(stats.allocation_requests, 2U);
  EXPECT_EQ(stats.limit, 64 * kMiB);
  pool_.free(second);
  stats = pool_.stats();
  EXPECT_EQ(stats.allocated_bytes.current, 1024U);
  EXPECT_EQ(stats.allocated_bytes.peak, 1024 + 3 * kMiB);
  EXPECT_EQ(stats.allocated_bytes.freed, 3 * kMiB);
  EXPECT_EQ(stats.frees, 1U);
  EXPECT_GE(stats.reserved_bytes.current, stats.allocated_bytes.current);
  pool_.reset_peak_stats();
  EXPECT_EQ(pool_.stats().allocated_bytes.peak, 1024U);
  pool_.reset_accumulated_stats();
  EXPECT_EQ(pool_.stats().allocated_bytes.allocated, 0U);
  EXPECT_EQ(pool_.stats().allocated_bytes.current, 1024U);
  pool_.free(first);
}

TEST_F(BlockPoolTest, EmptyCacheReturnsPagesToTheSystem) {
  std::vector<Block*> blocks;
  for (int i = 0; i < 6; ++i) blocks.push_back(take(5 * kMiB));
  Block* kept = take(100);
  for (Block* block : blocks) {
    std::memset(block->data, 1, block->nbytes);
    pool_.free(block);
  }
  const std::size_t before = core_->heap().committed();
  EXPECT_GE(before, 30 * kMiB);
  pool_.empty_cache();
  EXPECT_EQ(core_->heap().committed(), 2 * kMiB);  // the unit of the block that is in use
  EXPECT_EQ(pool_.stats().reserved_bytes.current, 2 * kMiB);
  pool_.free(kept);
  pool_.empty_cache();
  EXPECT_EQ(core_->heap().committed(), 0U);
  EXPECT_EQ(pool_.stats().reserved_bytes.current, 0U);
  EXPECT_EQ(pool_.stats().segments.current, 0U);
}

TEST_F(BlockPoolTest, EmptyCacheWaitsForTheStreamsThatMayStillUseTheMemory) {
  Gate gate;
  Block* block = take(2 * kMiB);
  stream_.submit(gate.command());
  bool intact = false;
  submit(stream_, [&intact, data = block->data] {
    data[0] = std::byte{3};
    intact = data[0] == std::byte{3};
  });
  pool_.free(block);
  std::thread emptier([&] { pool_.empty_cache(); });
  gate.wait_for_arrival();
  gate.open();
  emptier.join();
  EXPECT_TRUE(stream_.query());
  EXPECT_TRUE(intact);
  EXPECT_EQ(core_->heap().committed(), 0U);
}

TEST_F(BlockPoolTest, FreeingTwiceIsABug) {
  Block* block = take(256);
  pool_.free(block);
  EXPECT_THROW(pool_.free(block), CheckFailure);
  pool_.free(nullptr);
}

TEST_F(BlockPoolTest, AForkedChildCanNeitherTakeNorHarm) {
  Block* block = take(4096);
  std::memset(block->data, 7, block->nbytes);
  const pid_t child = fork();
  if (child == 0) {
    pool_.free(block);
    pool_.add_use(block, side_, 0);
    pool_.empty_cache();
    const auto more = pool_.allocate(1, stream_);
    _exit(!more.is_ok() && more.status().code() == StatusCode::kUnavailable ? 0 : 1);
  }
  int status = 1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(block->data[4095], std::byte{7});
  EXPECT_EQ(pool_.stats().blocks.current, 1U);
  pool_.free(block);
}

// Random requests of several threads: no two blocks overlap, contents stay, and all of it comes back.
TEST_F(BlockPoolTest, ManyThreads) {
  const auto work = [this](unsigned seed, Stream& stream) {
    std::mt19937 random(seed);
    std::vector<Block*> mine;
    const auto fill = static_cast<std::byte>(seed);
    for (int i = 0; i < 4000; ++i) {
      if (mine.size() < 20 && random() % 2 == 0) {
        const std::size_t nbytes = std::size_t{1} << (random() % 18);
        auto block = pool_.allocate(nbytes, stream);
        ASSERT_TRUE(block.is_ok()) << block.status().message();
        std::memset(block.value()->data, static_cast<int>(fill), nbytes);
        mine.push_back(block.value());
      } else if (!mine.empty()) {
        std::swap(mine[random() % mine.size()], mine.back());
        Block* block = mine.back();
        mine.pop_back();
        ASSERT_EQ(block->data[0], fill);
        ASSERT_EQ(block->data[block->requested - 1], fill);
        if (random() % 3 == 0) pool_.add_use(block, side_, side_.submitted());
        pool_.free(block);
      }
    }
    for (Block* block : mine) pool_.free(block);
  };
  std::vector<std::thread> threads;
  for (unsigned seed = 1; seed <= 4; ++seed) {
    threads.emplace_back(work, seed, std::ref(seed % 2 == 0 ? stream_ : core_->acquire_stream(0)));
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(pool_.stats().allocated_bytes.current, 0U);
  pool_.empty_cache();
  EXPECT_EQ(pool_.stats().kept_bytes.current, 0U);
  EXPECT_EQ(core_->heap().committed(), 0U);
}

}  // namespace
}  // namespace neuron
