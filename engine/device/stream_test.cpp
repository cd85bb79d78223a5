#include "engine/device/stream.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstdlib>
#include <thread>
#include <utility>
#include <vector>

#include "engine/base/check.h"
#include "engine/testing/device_fixtures.h"
#include "engine/testing/gate.h"

namespace neuron {
namespace {

class StreamTest : public ::testing::Test {
 protected:
  std::unique_ptr<Core> core_ = make_test_core();
  Stream& stream_ = core_->default_stream();
};

TEST_F(StreamTest, EmptyStreamIsDone) {
  EXPECT_EQ(stream_.submitted(), 0U);
  EXPECT_EQ(stream_.completed(), 0U);
  EXPECT_TRUE(stream_.query());
  EXPECT_EQ(stream_.synchronize(), nullptr);
}

TEST_F(StreamTest, QueryIsFalseWhileACommandRunsOrWaits) {
  Gate gate;
  EXPECT_EQ(stream_.submit(gate.command()), 1U);
  EXPECT_FALSE(stream_.query());
  gate.wait_for_arrival();
  EXPECT_FALSE(stream_.query());
  const StreamPosition second = submit(stream_, [] {});
  gate.open();
  EXPECT_EQ(stream_.synchronize(), nullptr);
  EXPECT_TRUE(stream_.query());
  EXPECT_EQ(stream_.completed(), second);
}

TEST_F(StreamTest, TheSubmitterGoesOnWhileACommandIsHeld) {
  Gate gate;
  bool ran = false;
  stream_.submit(gate.command());
  const StreamPosition position = submit(stream_, [&] { ran = true; });
  EXPECT_FALSE(stream_.reached(position));
  gate.open();
  EXPECT_TRUE(stream_.wait_until(position).is_ok());
  EXPECT_TRUE(ran);
}

TEST_F(StreamTest, StreamsAreIndependent) {
  Gate gate;
  stream_.submit(gate.command());
  Stream& other = core_->acquire_stream(0);
  bool ran = false;
  submit(other, [&] { ran = true; });
  EXPECT_EQ(other.synchronize(), nullptr);
  EXPECT_TRUE(ran);
  EXPECT_FALSE(stream_.query());
  gate.open();
}

// The commands share plain data: that each sees the one before proves that they run one at a time, in order.
TEST_F(StreamTest, CommandsOfManyThreadsRunInTheOrderOfTheirPositions) {
  constexpr int kThreads = 6;
  constexpr int kEach = 3000;
  std::vector<std::pair<int, int>> ran;
  std::vector<std::vector<StreamPosition>> positions(kThreads);
  std::vector<std::thread> submitters;
  for (int thread = 0; thread < kThreads; ++thread) {
    submitters.emplace_back([&, thread] {
      for (int i = 0; i < kEach; ++i) {
        auto& mine = positions[static_cast<std::size_t>(thread)];
        mine.push_back(submit(stream_, [&ran, thread, i] { ran.emplace_back(thread, i); }));
      }
    });
  }
  for (auto& submitter : submitters) submitter.join();
  EXPECT_EQ(stream_.synchronize(), nullptr);
  ASSERT_EQ(ran.size(), std::size_t{kThreads} * kEach);
  for (int thread = 0; thread < kThreads; ++thread) {
    for (int i = 0; i < kEach; ++i) {
      const StreamPosition position =
          positions[static_cast<std::size_t>(thread)][static_cast<std::size_t>(i)];
      EXPECT_EQ(ran[position - 1], std::make_pair(thread, i));
    }
  }
}

TEST_F(StreamTest, TheSubmissionLockKeepsOthersOut) {
  auto lock = stream_.lock_submission();
  std::thread other([&] { submit(stream_, [] {}); });
  // Whatever the other thread does meanwhile, the three positions are neighbours.
  const StreamPosition first = stream_.submit_locked(make_command([] {}), lock);
  const StreamPosition second = stream_.submit_locked(make_command([] {}, RunMode::kMayInline), lock);
  const StreamPosition third = stream_.submit_locked(make_command([] {}), lock);
  EXPECT_EQ(second, first + 1);
  EXPECT_EQ(third, first + 2);
  EXPECT_TRUE(lock.owns_lock());
  lock.unlock();
  other.join();
  EXPECT_EQ(stream_.submitted(), 4U);
  std::unique_lock<std::mutex> unlocked;
  EXPECT_THROW(stream_.submit_locked(make_command([] {}), unlocked), CheckFailure);
}

TEST_F(StreamTest, WaitUntilGivesUpAtItsDeadline) {
  Gate gate;
  const StreamPosition position = stream_.submit(gate.command());
  EXPECT_EQ(stream_.wait_until(position, Deadline::after(std::chrono::milliseconds(1))).code(),
            StatusCode::kTimeout);
  gate.open();
  EXPECT_TRUE(stream_.wait_until(position).is_ok());
}

TEST_F(StreamTest, AWaitHoldsOneStreamUntilTheOtherIsThere) {
  Gate gate;
  Stream& other = core_->acquire_stream(0);
  int value = 0;
  other.submit(gate.command());
  const StreamPosition written = submit(other, [&] { value = 7; });
  stream_.wait_for(other, written);
  int seen = -1;
  const StreamPosition read = submit(stream_, [&] { seen = value; });
  gate.wait_for_arrival();
  EXPECT_FALSE(stream_.reached(read));
  gate.open();
  EXPECT_EQ(stream_.synchronize(), nullptr);
  EXPECT_EQ(seen, 7);
}

TEST_F(StreamTest, AWaitForWhatIsDoneCostsNoCommand) {
  Stream& other = core_->acquire_stream(0);
  const StreamPosition done = submit(other, [] {});
  EXPECT_EQ(other.synchronize(), nullptr);
  stream_.wait_for(other, done);
  stream_.wait_for(stream_, stream_.submitted());
  EXPECT_EQ(stream_.submitted(), 0U);
  EXPECT_THROW(stream_.wait_for(other, done + 1), CheckFailure);
}

TEST_F(StreamTest, CommandsAreRetiredOnceBeforeTheyCountAsCompleted) {
  struct Counted final : Command {
    Counted(Stream& on, int& count, bool& early)
        : Command(CommandKind::kHost, RunMode::kQueued, "counted"),
          stream(on),
          retired(count),
          completed(early) {}
    Status run(Stream& /*stream*/) override { return Status::ok(); }
    void retire() noexcept override {
      ++retired;
      completed = completed || stream.query();
      delete this;
    }
    Stream& stream;
    int& retired;
    bool& completed;
  };
  int retired = 0;
  bool completed_before = false;
  for (int i = 1; i <= 100; ++i) {
    const StreamPosition position =
        stream_.submit(std::make_unique<Counted>(stream_, retired, completed_before));
    ASSERT_TRUE(stream_.wait_until(position).is_ok());
    ASSERT_EQ(retired, i);
  }
  EXPECT_FALSE(completed_before);
}

TEST_F(StreamTest, TheThreadInitializerRunsFirstOnEachStreamThread) {
  static thread_local bool initialized = false;
  set_stream_thread_initializer([] { initialized = true; });
  for (int i = 0; i < 3; ++i) {
    Stream& stream = core_->acquire_stream(0);
    bool seen = false;
    submit(stream, [&] { seen = initialized; });
    EXPECT_EQ(stream.synchronize(), nullptr);
    EXPECT_TRUE(seen);
  }
  EXPECT_FALSE(initialized);
  set_stream_thread_initializer({});
}

TEST_F(StreamTest, ACommandMaySubmitButNotWaitForItsOwnStream) {
  StreamErrorPtr waited;
  submit(stream_, [&] {
    EXPECT_TRUE(stream_.runs_here());
    submit(stream_, [] {});
    (void)stream_.wait_until(stream_.submitted());
  });
  waited = stream_.synchronize();
  ASSERT_NE(waited, nullptr);
  EXPECT_THROW(std::rethrow_exception(waited->exception), CheckFailure);
  EXPECT_EQ(stream_.submitted(), 2U);
  EXPECT_FALSE(stream_.runs_here());
}

TEST_F(StreamTest, AClosedStreamSkipsNewCommandsAndFinishesOldOnes) {
  struct Skipped final : Command {
    explicit Skipped(StatusCode& code) : Command(CommandKind::kHost, RunMode::kQueued, "late"), seen(code) {}
    Status run(Stream& /*stream*/) override { return Status::ok(); }
    void skip(Stream& /*stream*/, const StreamError& error) override { seen = error.status.code(); }
    StatusCode& seen;
  };
  Gate gate;
  bool ran = false;
  stream_.submit(gate.command());
  const StreamPosition last = submit(stream_, [&] { ran = true; });
  stream_.close();
  StatusCode seen = StatusCode::kOk;
  EXPECT_EQ(stream_.submit(std::make_unique<Skipped>(seen)), last);
  EXPECT_EQ(seen, StatusCode::kUnavailable);
  gate.open();
  EXPECT_EQ(stream_.synchronize(), nullptr);
  EXPECT_TRUE(ran);
}

// Sanitizers need address space of their own.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
TEST(StreamThreadDeathTest, WithoutAThreadTheSubmitterRunsItsCommands) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto body = [] {
    const auto core = make_test_core();
    Stream& stream = core->default_stream();
    // No address space is left for another stack.
    const rlimit nothing{0, 0};
    setrlimit(RLIMIT_AS, &nothing);
    std::thread::id id;
    submit(stream, [&] { id = std::this_thread::get_id(); });
    const bool first = stream.query() && id == std::this_thread::get_id();
    submit(stream, [&] { id = {}; });
    std::_Exit(first && stream.query() && id == std::thread::id() ? 0 : 1);
  };
  EXPECT_EXIT(body(), ::testing::ExitedWithCode(0), "");
}
#endif

TEST(StreamEndTest, DestructionRunsWhatWasSubmitted) {
  int ran = 0;
  {
    auto core = make_test_core();
    Stream& side = core->acquire_stream(0);
    for (int i = 0; i < 500; ++i) submit(side, [&] { ++ran; });
    core->default_stream().wait_for(side, side.submitted());
    submit(core->default_stream(), [&] { ++ran; });
  }
  EXPECT_EQ(ran, 501);
}

class RunAheadTest : public ::testing::Test {
 protected:
  // Submits `total` commands; the first one waits until submission is a full limit ahead, and all note how
  // far it is, after they have given it the chance to go farther.
  static StreamPosition most_ahead(const RunAheadLimits& limits, StreamPosition total,
                                   std::uint64_t held_bytes) {
    CoreOptions options;
    options.memory_limit = DeviceHeap::kUnit;
    options.run_ahead = limits;
    const auto core = make_test_core(options);
    Stream& stream = core->default_stream();
    const StreamPosition bound = held_bytes == 0 ? limits.commands : limits.bytes / held_bytes;
    StreamPosition most = 0;
    const auto ahead = [&] { return stream.submitted() - stream.completed(); };
    for (StreamPosition i = 0; i < total; ++i) {
      auto command = make_command([&, first = i == 0] {
        while (first && ahead() < bound) std::this_thread::yield();
        for (int chance = 0; chance < 100; ++chance) std::this_thread::yield();
        most = std::max(most, ahead());
      });
      command->set_held_bytes(held_bytes);
      stream.submit(std::move(command));
    }
    EXPECT_EQ(stream.synchronize(), nullptr);
    return most;
  }
};

TEST_F(RunAheadTest, IsBoundedByCommands) {
  for (const std::uint32_t commands : {1U, 2U, 3U, 8U, 100U}) {
    RunAheadLimits limits;
    limits.commands = commands;
    EXPECT_EQ(most_ahead(limits, 1000, 0), commands);
  }
}

TEST_F(RunAheadTest, IsBoundedByHeldBytes) {
  RunAheadLimits limits;
  limits.bytes = 1000;
  EXPECT_EQ(most_ahead(limits, 300, 300), 3U);
}

TEST_F(RunAheadTest, OneCommandMayHoldMoreThanTheLimit) {
  RunAheadLimits limits;
  limits.bytes = 10;
  EXPECT_LE(most_ahead(limits, 50, 1000), 1U);
}

TEST_F(RunAheadTest, ACommandThatFillsItsOwnStreamIsABug) {
  CoreOptions options;
  options.memory_limit = DeviceHeap::kUnit;
  options.run_ahead.commands = 4;
  const auto core = make_test_core(options);
  Stream& stream = core->default_stream();
  submit(stream, [&] {
    for (int i = 0; i < 4; ++i) submit(stream, [] {});
  });
  const StreamErrorPtr error = stream.synchronize();
  ASSERT_NE(error, nullptr);
  EXPECT_THROW(std::rethrow_exception(error->exception), CheckFailure);
}

}  // namespace
}  // namespace neuron
