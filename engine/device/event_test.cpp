#include "engine/device/event.h"

#include <gtest/gtest.h>

#include <string>
#include <thread>

#include "engine/base/clock.h"
#include "engine/testing/device_fixtures.h"
#include "engine/testing/gate.h"

namespace neuron {
namespace {

class EventTest : public ::testing::Test {
 protected:
  std::unique_ptr<Core> core_ = make_test_core();
  Stream& stream_ = core_->default_stream();
  Stream& side_ = core_->acquire_stream(0);
};

TEST_F(EventTest, NeverRecordedIsDoneAndHoldsNobody) {
  const Event event(false);
  EXPECT_TRUE(event.query());
  EXPECT_TRUE(event.synchronize().is_ok());
  event.wait(stream_);
  EXPECT_EQ(stream_.submitted(), 0U);
}

TEST_F(EventTest, RecordingAndWaitingWithoutTimingNeedNoCommandOfTheirOwn) {
  Event event(false);
  const StreamPosition position = submit(side_, [] {});
  EXPECT_EQ(side_.synchronize(), nullptr);
  event.record(side_);
  EXPECT_EQ(event.recording().position, position);
  EXPECT_EQ(side_.submitted(), position);
  EXPECT_TRUE(event.query());
}

TEST_F(EventTest, QueryTellsWhetherTheRecordingIsReached) {
  Gate gate;
  Event event(false);
  stream_.submit(gate.command());
  event.record(stream_);
  EXPECT_FALSE(event.query());
  EXPECT_EQ(event.synchronize(Deadline::after(std::chrono::milliseconds(1))).code(), StatusCode::kTimeout);
  gate.open();
  EXPECT_TRUE(event.synchronize().is_ok());
  EXPECT_TRUE(event.query());
}

TEST_F(EventTest, AWaitBindsToTheRecordingOfTheCall) {
  Gate first;
  Gate second;
  Event event(false);
  side_.submit(first.command());
  event.record(side_);
  event.wait(stream_);
  const StreamPosition position = submit(stream_, [] {});
  side_.submit(second.command());
  event.record(side_);  // moves the event, not the wait
  first.open();
  EXPECT_TRUE(stream_.wait_until(position).is_ok());
  EXPECT_FALSE(event.query());
  second.open();
  EXPECT_TRUE(event.synchronize().is_ok());
}

TEST_F(EventTest, EventsOrderStreams) {
  Gate gate;
  int value = 0;
  int seen = -1;
  Event event(false);
  side_.submit(gate.command());
  submit(side_, [&] { value = 42; });
  event.record(side_);
  event.wait(stream_);
  submit(stream_, [&] { seen = value; });
  gate.open();
  EXPECT_EQ(stream_.synchronize(), nullptr);
  EXPECT_EQ(seen, 42);
}

TEST_F(EventTest, TimingMeasuresOnTheStream) {
  Event start(true);
  Event end(true);
  start.record(stream_);
  std::int64_t inside = 0;
  submit(stream_, [&] { inside = steady_ns(); });
  end.record(stream_);
  ASSERT_TRUE(end.synchronize().is_ok());
  EXPECT_LE(start.recording().time_ns->load(), inside);
  EXPECT_GE(end.recording().time_ns->load(), inside);
  const auto elapsed = elapsed_ms(start, end);
  ASSERT_TRUE(elapsed.is_ok());
  EXPECT_GE(elapsed.value(), 0.0);
  EXPECT_EQ(elapsed_ms(start, start).value(), 0.0);
}

TEST_F(EventTest, AnIdleStreamWithInlineCommandsTakesTheTimeAtOnce) {
  const InlinePolicyScope policy(InlinePolicy::kAlways);
  Event event(true);
  const std::int64_t before = steady_ns();
  event.record(stream_);
  EXPECT_TRUE(event.query());
  EXPECT_GE(event.recording().time_ns->load(), before);
  EXPECT_LE(event.recording().time_ns->load(), steady_ns());
}

TEST_F(EventTest, TheTimeIsTakenOnAPoisonedStreamToo) {
  submit(stream_, [] { return Status(StatusCode::kInternal, "broken"); });
  Event event(true);
  event.record(stream_);
  ASSERT_TRUE(event.synchronize().is_ok());
  EXPECT_EQ(elapsed_ms(event, event).value(), 0.0);
  EXPECT_NE(stream_.take_error(), nullptr);
}

TEST_F(EventTest, ElapsedTimeExplainsWhatIsMissing) {
  const auto message = [](const Event& a, const Event& b) {
    const auto elapsed = elapsed_ms(a, b);
    EXPECT_EQ(elapsed.status().code(), StatusCode::kInvalidArgument);
    return elapsed.status().message();
  };
  Gate gate;
  Event plain(false);
  Event never(true);
  Event pending(true);
  Event done(true);
  plain.record(side_);
  done.record(side_);
  ASSERT_TRUE(done.synchronize().is_ok());
  stream_.submit(gate.command());
  pending.record(stream_);
  EXPECT_EQ(message(plain, done), "Event was not created with timing enabled");
  EXPECT_EQ(message(done, plain), "Event was not created with timing enabled");
  EXPECT_NE(message(never, done).find("has not been recorded"), std::string::npos);
  EXPECT_NE(message(done, pending).find("is not completed"), std::string::npos);
  gate.open();
  EXPECT_EQ(stream_.synchronize(), nullptr);
}

TEST_F(EventTest, RecordingAndWaitingFromManyThreads) {
  Event event(true);
  std::thread recorder([&] {
    for (int i = 0; i < 500; ++i) event.record(side_);
  });
  std::thread waiter([&] {
    for (int i = 0; i < 500; ++i) {
      event.wait(stream_);
      (void)event.query();
    }
  });
  recorder.join();
  waiter.join();
  EXPECT_EQ(core_->synchronize(), nullptr);
  EXPECT_TRUE(event.query());
}

}  // namespace
}  // namespace neuron
