#include "engine/device/memory_history.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "engine/device/stream.h"
#include "engine/testing/device_fixtures.h"
#include "engine/testing/gate.h"

namespace neuron {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;

int here = 0;
CallSite give_here() { return std::make_shared<const int>(here); }

class MemoryHistoryTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { set_call_site_recorder(&give_here); }
  void TearDown() override { stop_memory_history(); }

  static MemoryHistoryOptions all() { return {SitesKept::kOfFrees, 100, {}}; }

  Block* take(std::size_t nbytes) {
    auto block = pool_.allocate(nbytes, stream_);
    EXPECT_TRUE(block.is_ok()) << block.status().message();
    return block.value();
  }

  // "alloc:1000@7": what was done, to how many bytes, where.
  static std::vector<std::string> story() {
    static constexpr std::array<const char*, kMemoryActions> kNames = {
        "alloc", "free", "freed", "segment", "segment-free", "oom", "snapshot"};
    std::vector<std::string> out;
    for (const MemoryEvent& event : memory_events(0)) {
      out.push_back(std::string(kNames[static_cast<std::size_t>(event.action)]) + ":" +
                    std::to_string(event.nbytes) + place(event.site));
    }
    return out;
  }
  static std::string place(const CallSite& site) {
    return site == nullptr ? "" : "@" + std::to_string(*static_cast<const int*>(site.get()));
  }

  using Story = std::vector<std::string>;
  std::unique_ptr<Core> core_ = make_test_core(64 * kMiB);
  BlockPool& pool_ = core_->pool();
  Stream& stream_ = core_->default_stream();
};

TEST_F(MemoryHistoryTest, NothingIsRecordedBeforeTheStart) {
  pool_.free(take(1000));
  EXPECT_EQ(story(), Story{});
  for (const SegmentReading& segment : pool_.read_segments()) {
    for (const BlockReading& block : segment.blocks) EXPECT_EQ(block.site, nullptr);
  }
}

TEST_F(MemoryHistoryTest, EventsInOrderWithTheirPlaces) {
  start_memory_history(all());
  here = 1;
  Block* block = take(1000);
  here = 2;
  pool_.free(block);
  here = 3;
  pool_.empty_cache();
  EXPECT_EQ(story(), (Story{"segment:2097152@1", "alloc:1000@1", "free:1000@2", "freed:1000@2",
                            "segment-free:2097152@3"}));
  const auto events = memory_events(0);
  EXPECT_EQ(events[1].data, events[0].data);
  EXPECT_EQ(events[3].data, events[0].data);
  EXPECT_GE(events[3].time_ns, events[0].time_ns);
}

TEST_F(MemoryHistoryTest, AFreeCompletesWhenTheLastUserIsDone) {
  start_memory_history(all());
  Stream& side = core_->acquire_stream(0);
  Gate gate;
  here = 1;
  Block* block = take(1000);
  const StreamPosition use = side.submit(gate.command());
  pool_.add_use(block, side, use);
  here = 2;
  pool_.free(block);
  EXPECT_EQ(story().back(), "free:1000@2");
  EXPECT_EQ(pool_.read_segments()[0].blocks[0].state, BlockState::kKept);
  gate.open();
  ASSERT_TRUE(side.wait_until(use).is_ok());
  here = 3;
  pool_.free(take(kMiB));
  EXPECT_EQ(story()[3], "freed:1000");
}

TEST_F(MemoryHistoryTest, AShortageHasWhatWasFree) {
  start_memory_history(all());
  here = 4;
  EXPECT_FALSE(pool_.allocate(65 * kMiB, stream_).is_ok());
  EXPECT_EQ(story(), (Story{"oom:" + std::to_string(65 * kMiB) + "@4"}));
  EXPECT_EQ(memory_events(0)[0].device_free, 64 * kMiB);
}

TEST_F(MemoryHistoryTest, OptionsChooseWhatIsKept) {
  here = 5;
  MemoryHistoryOptions options = all();
  options.sites = SitesKept::kOfAllocations;
  options.skipped[static_cast<std::size_t>(MemoryAction::kFreeRequested)] = true;
  start_memory_history(options);
  pool_.free(take(1000));
  EXPECT_EQ(story(), (Story{"segment:2097152@5", "alloc:1000@5", "freed:1000"}));
  clear_memory_history();
  options.sites = SitesKept::kOfBlocks;
  options.max_events = 2;
  start_memory_history(options);
  Block* kept = take(3000);
  pool_.free(take(2000));
  EXPECT_EQ(story(), (Story{"alloc:2000", "freed:2000"})) << "the oldest goes";
  EXPECT_EQ(place(pool_.read_segments()[0].blocks[0].site), "@5");
  pool_.free(kept);
  options.sites = SitesKept::kNone;
  start_memory_history(options);
  kept = take(3000);
  EXPECT_EQ(pool_.read_segments()[0].blocks[0].site, nullptr);
  pool_.free(kept);
  stop_memory_history();
  EXPECT_EQ(story(), Story{});
}

TEST_F(MemoryHistoryTest, RecordsWhileThreadsAllocateAndOthersRead) {
  MemoryHistoryOptions options = all();
  here = 7;
  start_memory_history(options);
  std::atomic<bool> stop{false};
  std::atomic<int> allocations{0};
  std::vector<std::thread> threads;
  for (std::size_t worker = 0; worker < 3; ++worker) {
    threads.emplace_back([&, worker] {
      Stream& stream = core_->acquire_stream(0);
      while (!stop) {
        auto block = pool_.allocate(1000 * (worker + 1), stream);
        if (block.is_ok()) pool_.free(block.value());
        ++allocations;
      }
    });
  }
  for (int round = 0; allocations < 5000; ++round) {
    EXPECT_LE(memory_events(0).size(), options.max_events);
    pool_.read_segments();
    if (round % 10 == 0) pool_.empty_cache();
    if (round % 10 == 3) stop_memory_history();
    if (round % 10 == 6) start_memory_history(options);
  }
  stop = true;
  for (std::thread& thread : threads) thread.join();
  for (const MemoryEvent& event : memory_events(0)) {
    if (event.action == MemoryAction::kAlloc) {
      EXPECT_TRUE(event.site == nullptr || place(event.site) == "@7");
    }
  }
}

TEST_F(MemoryHistoryTest, SegmentsAreReadWithoutGaps) {
  start_memory_history(all());
  here = 6;
  Block* small = take(1000);
  Block* large = take(3 * kMiB);
  const auto segments = pool_.read_segments();
  ASSERT_EQ(segments.size(), 2U);
  EXPECT_TRUE(segments[0].small);
  EXPECT_FALSE(segments[1].small);
  std::uint64_t total = 0;
  for (const SegmentReading& segment : segments) {
    const std::byte* next = segment.data;
    for (const BlockReading& block : segment.blocks) {
      EXPECT_EQ(block.data, next);
      next += block.nbytes;
    }
    EXPECT_EQ(next, segment.data + segment.nbytes);
    EXPECT_EQ(segment.blocks[0].state, BlockState::kUsed);
    EXPECT_EQ(place(segment.blocks[0].site), "@6");
    EXPECT_EQ(segment.blocks[1].state, BlockState::kFree);
    EXPECT_EQ(segment.blocks[1].requested, 0U);
    total += segment.nbytes;
  }
  EXPECT_EQ(total, pool_.stats().reserved_bytes.current);
  pool_.free(small);
  pool_.free(large);
}

}  // namespace
}  // namespace neuron
