#include "engine/device/timeline.h"

#include <gtest/gtest.h>

#include <string_view>
#include <thread>

#include "engine/testing/device_fixtures.h"

namespace neuron {
namespace {

class TimelineTest : public ::testing::Test {
 protected:
  ~TimelineTest() override { stop_timeline(); }

  std::unique_ptr<Core> core_ = make_test_core();
  Stream& stream_ = core_->default_stream();
};

TEST_F(TimelineTest, RecordsNothingWhenItIsOff) {
  start_timeline(16);
  stop_timeline();
  submit(stream_, [] {});
  EXPECT_EQ(stream_.synchronize(), nullptr);
  EXPECT_TRUE(read_timeline().spans.empty());
}

TEST_F(TimelineTest, ASpanForEachCommand) {
  start_timeline(16);
  auto command = make_command([] {}, RunMode::kQueued, "mm", CommandKind::kCopy);
  command->set_traffic_bytes(4096);
  stream_.submit(std::move(command));
  Stream& side = core_->acquire_stream(0);
  side.wait_for(stream_, 1);
  submit(side, [] {}, RunMode::kQueued, "relu");
  EXPECT_EQ(core_->synchronize(), nullptr);
  const TimelineReading reading = read_timeline();
  EXPECT_EQ(reading.dropped, 0U);
  ASSERT_GE(reading.spans.size(), 2U);
  const Span& first = reading.spans.front();
  EXPECT_EQ(std::string_view(first.name), "mm");
  EXPECT_EQ(first.kind, CommandKind::kCopy);
  EXPECT_EQ(first.position, 1U);
  EXPECT_EQ(first.stream, stream_.id());
  EXPECT_EQ(first.core, 0);
  EXPECT_EQ(first.bytes, 4096U);
  EXPECT_FALSE(first.skipped);
  const Span& last = reading.spans.back();
  EXPECT_EQ(std::string_view(last.name), "relu");
  EXPECT_EQ(last.stream, side.id());
  EXPECT_NE(last.thread, first.thread);
  for (const Span& span : reading.spans) {
    EXPECT_LE(span.start_ns, span.end_ns);
    EXPECT_GE(span.cpu_ns, 0);
  }
  EXPECT_LE(first.end_ns, last.start_ns);
}

TEST_F(TimelineTest, SkippedCommandsAreMarked) {
  start_timeline(16);
  submit(stream_, [] { return Status(StatusCode::kInternal, "broken"); }, RunMode::kQueued, "bad");
  submit(stream_, [] {}, RunMode::kQueued, "next");
  EXPECT_NE(stream_.synchronize(), nullptr);
  const auto spans = read_timeline().spans;
  ASSERT_EQ(spans.size(), 2U);
  EXPECT_FALSE(spans[0].skipped);
  EXPECT_TRUE(spans[1].skipped);
}

TEST_F(TimelineTest, AFullRingDropsTheOldest) {
  start_timeline(4);
  for (int i = 0; i < 10; ++i) submit(stream_, [] {});
  EXPECT_EQ(stream_.synchronize(), nullptr);
  const TimelineReading reading = read_timeline();
  EXPECT_EQ(reading.dropped, 6U);
  ASSERT_EQ(reading.spans.size(), 4U);
  for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(reading.spans[i].position, 7 + i);
}

TEST_F(TimelineTest, ReadingWhileStreamsRecordGivesWholeSpans) {
  start_timeline(64);
  std::atomic<bool> done{false};
  std::thread reader([&] {
    do {
      for (const Span& span : read_timeline().spans) ASSERT_EQ(span.bytes, span.position);
    } while (!done.load());
  });
  for (StreamPosition i = 1; i <= 2000; ++i) {
    auto command = make_command([] {});
    command->set_traffic_bytes(i);
    stream_.submit(std::move(command));
  }
  EXPECT_EQ(stream_.synchronize(), nullptr);
  done.store(true);
  reader.join();
}

}  // namespace
}  // namespace neuron
