// Inline execution: a kMayInline command runs on the submitting thread if the policy says so and the stream
// is idle.
#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "engine/base/spin_wait.h"
#include "engine/testing/device_fixtures.h"
#include "engine/testing/gate.h"

namespace neuron {
namespace {

class StreamInlineTest : public ::testing::Test {
 protected:
  std::thread::id thread_of_next_command(RunMode mode) {
    std::thread::id id;
    submit(stream_, [&] { id = std::this_thread::get_id(); }, mode);
    EXPECT_EQ(stream_.synchronize(), nullptr);
    return id;
  }

  static std::unique_ptr<Core> core_that_runs_ahead(std::uint32_t commands) {
    CoreOptions options;
    options.memory_limit = DeviceHeap::kUnit;
    options.run_ahead.commands = commands;
    return make_test_core(options);
  }

  const InlinePolicyScope policy_{InlinePolicy::kAlways};
  std::unique_ptr<Core> core_ = make_test_core();
  Stream& stream_ = core_->default_stream();
};

TEST_F(StreamInlineTest, AnIdleStreamRunsOnTheSubmitter) {
  EXPECT_EQ(thread_of_next_command(RunMode::kMayInline), std::this_thread::get_id());
  const StreamPosition position = submit(stream_, [] {}, RunMode::kMayInline);
  EXPECT_TRUE(stream_.reached(position));
}

TEST_F(StreamInlineTest, QueuedCommandsNeverDo) {
  EXPECT_NE(thread_of_next_command(RunMode::kQueued), std::this_thread::get_id());
}

TEST_F(StreamInlineTest, NoneDoesWhenThePolicyIsNever) {
  const InlinePolicyScope never(InlinePolicy::kNever);
  EXPECT_NE(thread_of_next_command(RunMode::kMayInline), std::this_thread::get_id());
}

TEST_F(StreamInlineTest, ABusyStreamQueues) {
  Gate gate;
  stream_.submit(gate.command());
  std::thread::id id;
  const StreamPosition position =
      submit(stream_, [&] { id = std::this_thread::get_id(); }, RunMode::kMayInline);
  EXPECT_FALSE(stream_.reached(position));
  gate.open();
  EXPECT_EQ(stream_.synchronize(), nullptr);
  EXPECT_NE(id, std::this_thread::get_id());
  // Idle again, it is inline again, though the stream has a thread now.
  EXPECT_EQ(thread_of_next_command(RunMode::kMayInline), std::this_thread::get_id());
}

TEST_F(StreamInlineTest, OthersQueueBehindAnInlineCommand) {
  Gate gate;
  int value = 0;
  std::thread runner([&] {
    stream_.submit(gate.command(RunMode::kMayInline));
    // The stream's thread may have run more meanwhile, but not before this command.
  });
  gate.wait_for_arrival();
  EXPECT_FALSE(stream_.query());
  const StreamPosition second = submit(stream_, [&] { value = value * 10 + 1; }, RunMode::kMayInline);
  submit(stream_, [&] { value = value * 10 + 2; });
  EXPECT_FALSE(stream_.reached(second));
  gate.open();
  EXPECT_EQ(stream_.synchronize(), nullptr);
  EXPECT_EQ(value, 12);
  runner.join();
}

// The ring comes round to slots that held commands of old.
TEST_F(StreamInlineTest, OldCommandsAreNotRunAgain) {
  struct Recycled final : Command {
    explicit Recycled(int& count) : Command(CommandKind::kHost, RunMode::kQueued, "recycled"), runs(count) {}
    Status run(Stream& /*stream*/) override {
      ++runs;
      return Status::ok();
    }
    void retire() noexcept override {}
    int& runs;
  };
  const auto core = core_that_runs_ahead(2);
  Stream& stream = core->default_stream();
  int runs = 0;
  Recycled first(runs);
  Recycled second(runs);
  stream.submit(std::unique_ptr<Command>(&first));
  stream.submit(std::unique_ptr<Command>(&second));
  EXPECT_EQ(stream.synchronize(), nullptr);
  Gate gate;
  std::thread runner([&] { stream.submit(gate.command(RunMode::kMayInline)); });
  gate.wait_for_arrival();
  bool ran = false;
  submit(stream, [&] { ran = true; });
  for (int chance = 0; chance < 1000; ++chance) std::this_thread::yield();
  EXPECT_EQ(stream.completed(), 2U);
  gate.open();
  EXPECT_EQ(stream.synchronize(), nullptr);
  runner.join();
  EXPECT_TRUE(ran);
  EXPECT_EQ(runs, 2);
}

// The thread finds its commands, and reads none that comes later, however slow it is when an inline command has
// completed and others fill the ring (under TSan a slot that is written too early is a race).
TEST_F(StreamInlineTest, ARingThatFillsBehindAnInlineCommandKeepsOrder) {
  constexpr int kCommands = 4;
  const auto core = core_that_runs_ahead(kCommands);
  Stream& stream = core->default_stream();
  std::vector<int> order;
  std::vector<int> expected;
  for (int round = 0; round < 50; ++round) {
    Gate gate;
    std::thread runner([&] { stream.submit(gate.command(RunMode::kMayInline)); });
    gate.wait_for_arrival();
    std::thread filler([&] {
      for (int i = 0; i < 3 * kCommands; ++i) submit(stream, [&order, i] { order.push_back(i); });
    });
    for (int chance = 0; chance < 10; ++chance) std::this_thread::yield();
    gate.open();
    filler.join();
    runner.join();
    EXPECT_EQ(stream.synchronize(), nullptr);
    for (int i = 0; i < 3 * kCommands; ++i) expected.push_back(i);
  }
  EXPECT_EQ(order, expected);
}

TEST_F(StreamInlineTest, AnInlineCommandMaySubmitToItsStream) {
  std::vector<int> order;
  submit(
      stream_,
      [&] {
        submit(stream_, [&] { order.push_back(2); }, RunMode::kMayInline);
        order.push_back(1);
      },
      RunMode::kMayInline);
  EXPECT_EQ(stream_.synchronize(), nullptr);
  EXPECT_EQ(order, (std::vector<int>{1, 2}));
}

// Plain shared data again: inline and queued commands of many threads still run one at a time, by position.
TEST_F(StreamInlineTest, ConcurrentSubmittersKeepOrder) {
  constexpr int kThreads = 4;
  constexpr int kEach = 5000;
  std::vector<int> next(kThreads, 0);
  int wrong = 0;
  std::vector<std::thread> submitters;
  for (int thread = 0; thread < kThreads; ++thread) {
    submitters.emplace_back([&, thread] {
      for (int i = 0; i < kEach; ++i) {
        const RunMode mode = (i + thread) % 5 == 0 ? RunMode::kQueued : RunMode::kMayInline;
        submit(
            stream_,
            [&, thread, i] {
              int& expected = next[static_cast<std::size_t>(thread)];
              if (expected != i) ++wrong;
              expected = i + 1;
            },
            mode);
      }
    });
  }
  for (auto& submitter : submitters) submitter.join();
  EXPECT_EQ(stream_.synchronize(), nullptr);
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(stream_.completed(), StreamPosition{kThreads} * kEach);
}

TEST_F(StreamInlineTest, AFailureInlineBecomesTheStreamsError) {
  submit(stream_, []() -> void { throw std::runtime_error("inline failure"); }, RunMode::kMayInline, "mm");
  const StreamErrorPtr error = stream_.synchronize();
  ASSERT_NE(error, nullptr);
  EXPECT_EQ(error->op, "mm");
  EXPECT_EQ(error->status.message(), "inline failure");
}

}  // namespace
}  // namespace neuron
