// Errors: they stay with the stream, travel with waits, are raised once, and end when they are raised.
#include <gtest/gtest.h>

#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "engine/device/event.h"
#include "engine/testing/device_fixtures.h"
#include "engine/testing/gate.h"

namespace neuron {
namespace {

class StreamErrorsTest : public ::testing::Test {
 protected:
  static StreamPosition fail(Stream& stream, const char* op = "mm") {
    return submit(stream, []() -> void { throw std::runtime_error("singular"); }, RunMode::kQueued, op);
  }

  std::unique_ptr<Core> core_ = make_test_core();
  Stream& stream_ = core_->default_stream();
  Stream& side_ = core_->acquire_stream(0);
};

TEST_F(StreamErrorsTest, AThrownExceptionIsKeptWithItsOp) {
  fail(stream_);
  const StreamErrorPtr error = stream_.synchronize();
  ASSERT_NE(error, nullptr);
  EXPECT_EQ(error->op, "mm");
  EXPECT_EQ(error->status.code(), StatusCode::kExecution);
  EXPECT_EQ(error->status.message(), "singular");
  EXPECT_THROW(std::rethrow_exception(error->exception), std::runtime_error);
}

TEST_F(StreamErrorsTest, ABadStatusIsAnErrorToo) {
  submit(stream_, [] { return Status(StatusCode::kTimeout, "too late"); });
  const StreamErrorPtr error = stream_.synchronize();
  ASSERT_NE(error, nullptr);
  EXPECT_EQ(error->status.code(), StatusCode::kTimeout);
  EXPECT_EQ(error->exception, nullptr);
}

TEST_F(StreamErrorsTest, SomethingThatIsNoExceptionIsSurvived) {
  submit(stream_, []() -> void { throw 7; });
  const StreamErrorPtr error = stream_.synchronize();
  ASSERT_NE(error, nullptr);
  EXPECT_THROW(std::rethrow_exception(error->exception), int);
  bool ran = false;
  submit(stream_, [&] { ran = true; });
  EXPECT_EQ(stream_.synchronize(), nullptr);
  EXPECT_TRUE(ran);
}

TEST_F(StreamErrorsTest, LaterCommandsAreSkippedUntilItIsRaised) {
  int ran = 0;
  fail(stream_);
  submit(stream_, [&] { ++ran; });
  EXPECT_NE(stream_.synchronize(), nullptr);
  EXPECT_EQ(ran, 0);
  submit(stream_, [&] { ++ran; });
  EXPECT_EQ(stream_.synchronize(), nullptr);
  EXPECT_EQ(ran, 1);
}

TEST_F(StreamErrorsTest, ACommandQueuedBeforeTheRaiseRunsIfItsTurnComesAfter) {
  Gate gate;
  bool skipped_before = true;
  bool ran_after = false;
  fail(stream_);
  submit(stream_, [&] { skipped_before = false; });
  // The gate is on another stream, since a poisoned one would skip it; the wait is not skipped.
  side_.submit(gate.command());
  stream_.wait_for(side_, side_.submitted());
  submit(stream_, [&] { ran_after = true; });
  ASSERT_TRUE(stream_.wait_until(2).is_ok());
  EXPECT_NE(stream_.take_error(), nullptr);
  gate.open();
  EXPECT_EQ(stream_.synchronize(), nullptr);
  EXPECT_TRUE(skipped_before);
  EXPECT_TRUE(ran_after);
}

TEST_F(StreamErrorsTest, SkippedCommandsAreTold) {
  struct Told final : Command {
    explicit Told(std::string& op)
        : Command(CommandKind::kCollective, RunMode::kQueued, "all_reduce"), seen(op) {}
    Status run(Stream& /*stream*/) override { return Status::ok(); }
    void skip(Stream& /*stream*/, const StreamError& error) override { seen = error.op; }
    std::string& seen;
  };
  std::string seen;
  fail(stream_, "addmm");
  stream_.submit(std::make_unique<Told>(seen));
  EXPECT_NE(stream_.synchronize(), nullptr);
  EXPECT_EQ(seen, "addmm");
}

TEST_F(StreamErrorsTest, ErrorAtKnowsWhatCameBefore) {
  const StreamPosition good = submit(stream_, [] {});
  const StreamPosition bad = fail(stream_);
  const StreamPosition later = submit(stream_, [] {});
  ASSERT_TRUE(stream_.wait_until(later).is_ok());
  EXPECT_EQ(stream_.error_at(good), nullptr);
  EXPECT_NE(stream_.error_at(bad), nullptr);
  EXPECT_NE(stream_.error_at(later), nullptr);
  EXPECT_NE(stream_.error_at(later), nullptr);  // asking does not clear it
  EXPECT_NE(stream_.take_error(), nullptr);
  EXPECT_EQ(stream_.error_at(later), nullptr);
}

TEST_F(StreamErrorsTest, EventsCarryErrorsToTheStreamsThatWait) {
  Event before(false);
  Event after(false);
  Gate gate;
  side_.submit(gate.command());
  before.record(side_);
  fail(side_);
  after.record(side_);
  Stream& clean = core_->acquire_stream(0);
  before.wait(clean);
  after.wait(stream_);
  bool ran = false;
  bool clean_ran = false;
  submit(stream_, [&] { ran = true; });
  submit(clean, [&] { clean_ran = true; });
  gate.open();
  EXPECT_EQ(clean.synchronize(), nullptr);
  EXPECT_TRUE(clean_ran);
  const StreamErrorPtr error = stream_.synchronize();
  ASSERT_NE(error, nullptr);
  EXPECT_EQ(error->op, "mm");
  EXPECT_FALSE(ran);
  // Raised once, for all streams that it has reached.
  EXPECT_EQ(side_.synchronize(), nullptr);
}

TEST_F(StreamErrorsTest, AnErrorReachesAStreamThatWaitsForWhatIsDone) {
  const StreamPosition bad = fail(side_);
  ASSERT_TRUE(side_.wait_until(bad).is_ok());
  stream_.wait_for(side_, bad);
  EXPECT_NE(stream_.synchronize(), nullptr);
  EXPECT_EQ(side_.take_error(), nullptr);
}

TEST_F(StreamErrorsTest, OneOfManyRaisersGetsIt) {
  constexpr int kRounds = 50;
  for (int round = 0; round < kRounds; ++round) {
    const StreamPosition bad = fail(side_);
    stream_.wait_for(side_, bad);
    std::atomic<int> raised{0};
    std::vector<std::thread> raisers;
    for (Stream* stream : {&stream_, &side_, &stream_, &side_}) {
      raisers.emplace_back([&raised, stream] {
        if (stream->synchronize() != nullptr) ++raised;
      });
    }
    for (auto& raiser : raisers) raiser.join();
    ASSERT_EQ(raised.load(), 1);
  }
}

TEST_F(StreamErrorsTest, APermanentErrorStays) {
  submit(stream_, [&] {
    auto error = std::make_shared<StreamError>();
    error->op = "all_reduce";
    error->status = Status(StatusCode::kPeerDied, "rank 1 died");
    error->permanent = true;
    stream_.poison(error);
  });
  bool ran = false;
  for (int i = 0; i < 2; ++i) {
    submit(stream_, [&] { ran = true; });
    const StreamErrorPtr error = stream_.synchronize();
    ASSERT_NE(error, nullptr);
    EXPECT_EQ(error->status.code(), StatusCode::kPeerDied);
  }
  EXPECT_FALSE(ran);
}

TEST_F(StreamErrorsTest, TwoErrorsAreRaisedOneAfterTheOther) {
  fail(stream_, "first");
  const StreamPosition other = fail(side_, "second");
  stream_.wait_for(side_, other);
  bool ran = false;
  submit(stream_, [&] { ran = true; });
  const StreamErrorPtr first = stream_.synchronize();
  const StreamErrorPtr second = stream_.synchronize();
  ASSERT_NE(first, nullptr);
  ASSERT_NE(second, nullptr);
  EXPECT_EQ(first->op, "first");
  EXPECT_EQ(second->op, "second");
  EXPECT_EQ(stream_.synchronize(), nullptr);
  EXPECT_FALSE(ran);
}

TEST_F(StreamErrorsTest, DeviceWideSynchronizeFindsTheErrorOfAnyStream) {
  fail(core_->acquire_stream(1));
  const StreamErrorPtr error = core_->synchronize();
  ASSERT_NE(error, nullptr);
  EXPECT_EQ(error->op, "mm");
  EXPECT_EQ(core_->synchronize(), nullptr);
}

TEST_F(StreamErrorsTest, OriginTellsThePythonLine) {
  struct Located final : Command {
    Located() : Command(CommandKind::kCompute, RunMode::kQueued, "relu") {}
    Status run(Stream& /*stream*/) override { return Status(StatusCode::kInternal, "broken"); }
    std::string origin() const override { return "train.py:12"; }
  };
  stream_.submit(std::make_unique<Located>());
  const StreamErrorPtr error = stream_.synchronize();
  ASSERT_NE(error, nullptr);
  EXPECT_EQ(error->origin, "train.py:12");
}

}  // namespace
}  // namespace neuron
