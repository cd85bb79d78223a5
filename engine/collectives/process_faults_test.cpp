// Groups of real processes: that they work, and what the others learn when one dies, stops or leaves.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "engine/testing/exact_values.h"
#include "engine/testing/rank_processes.h"
#include "engine/testing/rank_threads.h"

namespace neuron {
namespace {

CollectiveRequest sum(const DeviceBuffer& buffer) {
  CollectiveRequest request{
      .kind = CollectiveKind::kAllReduce, .dtype = DType::kFloat32, .op = ReduceOp::kSum};
  request.count = buffer.nbytes() / sizeof(float);
  request.input = request.output = buffer.data();
  return request;
}

// Exit codes of the programs below.
constexpr int kGood = 0;
constexpr int kWrong = 50;
int code_of(const Status& status) { return 10 + static_cast<int>(status.code()); }
int code_of(StatusCode code) { return 10 + static_cast<int>(code); }

int report(const Status& status) {
  std::fprintf(stderr, "outcome: %s\n", status.message().c_str());
  return code_of(status);
}

const RankProgram kAllDtypes("all_dtypes", [](RankProcess& self) {
  const auto group = self.join();
  for (const DType dtype : all_dtypes()) {
    for (const ReduceOp op : all_reduce_ops()) {
      CollectiveRequest request{
          .kind = CollectiveKind::kAllReduce, .dtype = dtype, .op = op, .count = 70'001};
      std::vector<std::vector<std::byte>> inputs;
      std::vector<double> factors;
      for (int rank = 0; rank < self.size; ++rank) {
        inputs.push_back(exact_values(dtype, op, request.count, static_cast<std::uint64_t>(rank)));
        factors.push_back(rank + 1);
      }
      const DeviceBuffer buffer(self.core, inputs[static_cast<std::size_t>(self.rank)]);
      request.input = request.output = buffer.data();
      request.factor = self.rank + 1;
      const Status status = group->run(request);
      if (status.code() == StatusCode::kInvalidArgument) continue;
      if (!status.is_ok()) return report(status);
      if (buffer.read() != plain_reduce(dtype, op, inputs, factors)) {
        std::fprintf(stderr, "wrong: %s %s\n", dtype_name(dtype), reduce_op_name(op));
        return kWrong;
      }
    }
  }
  return group->destroy().is_ok() ? kGood : kWrong;
});

// Rank 1 does what the mark says after the first call; the others go on calling.
int call_until_error(RankProcess& self, std::size_t nbytes) {
  const auto group = self.join({.timeout = std::chrono::seconds(self.size == 3 ? 60 : 2)});
  const DeviceBuffer buffer(self.core, nbytes);
  buffer.fill(std::byte{0});
  Status status = group->run(sum(buffer));
  self.set_mark("joined-" + std::to_string(self.rank));
  while (status.is_ok()) status = group->run(sum(buffer));
  return report(status);
}

const RankProgram kSmallCalls("small_calls", [](RankProcess& self) { return call_until_error(self, 8); });
const RankProgram kLargeCalls("large_calls",
                              [](RankProcess& self) { return call_until_error(self, std::size_t{4} << 20); });

// Rank 1 is killed while the others wait for its message, or for it to receive theirs.
const RankProgram kMessages("messages", [](RankProcess& self) {
  const auto group = self.join();
  const DeviceBuffer buffer(self.core, std::size_t{1} << 20);
  PointToPointRequest request{.peer = 1, .count = buffer.nbytes(), .buffer = buffer.data()};
  if (self.rank == 0) request.direction = PointToPointRequest::Direction::kReceive;
  self.set_mark("joined-" + std::to_string(self.rank));
  if (self.rank == 1) self.wait_for_mark("never");
  const auto works = group->submit_messages(self.core.default_stream(), {request});
  return report(works.is_ok() ? works.value()[0]->wait() : works.status());
});

const RankProgram kLeaves("leaves", [](RankProcess& self) {
  const auto group = self.join();
  const DeviceBuffer buffer(self.core, std::size_t{64});
  buffer.fill(std::byte{0});
  Status status = group->run(sum(buffer));
  if (self.rank == 1) std::_Exit(7);
  while (status.is_ok()) status = group->run(sum(buffer));
  return report(status);
});

const RankProgram kEndsEarly("ends_early", [](RankProcess& self) {
  const auto group = self.join();
  const DeviceBuffer buffer(self.core, std::size_t{64});
  buffer.fill(std::byte{0});
  const Status status = group->run(sum(buffer));
  // All calls are made: that rank 1 has gone is nobody's error.
  if (self.rank == 1) std::_Exit(status.is_ok() ? kGood : kWrong);
  self.wait_for_mark("gone");
  return status.is_ok() && group->destroy().is_ok() ? kGood : kWrong;
});

const RankProgram kNeverCreates("never_creates", [](RankProcess& self) {
  if (self.rank == 1) return kGood;
  (void)self.join({.timeout = std::chrono::seconds(1)});
  return kWrong;
});

// Rank 1 never comes to the second assembly; rank 0 tells what became of the wait.
const RankProgram kAssembles("assembles", [](RankProcess& self) {
  const auto group = self.join();
  const auto nothing_found = [] { return Status::ok(); };
  const Status first = group->assemble(Deadline::after(std::chrono::seconds(60)), nothing_found);
  if (!first.is_ok()) return report(first);
  self.set_mark("joined-" + std::to_string(self.rank));
  if (self.rank == 1) self.wait_for_mark("never");
  return report(group->assemble(Deadline::after(std::chrono::seconds(60)), nothing_found));
});

void expect_in(const std::string& message, const std::string& part) {
  EXPECT_NE(message.find(part), std::string::npos) << "no \"" << part << "\" in: " << message;
}

// How many times the report stands on the stderr of all ranks together.
int reports(const std::vector<ProcessOutcome>& outcomes, const std::string& part) {
  int count = 0;
  for (const ProcessOutcome& outcome : outcomes) {
    if (outcome.output.find("NEURON_EMU:collectives") != std::string::npos &&
        outcome.output.find(part) != std::string::npos)
      ++count;
  }
  return count;
}

void expect_death_is_told(const char* program, int size) {
  RankProcesses ranks(program, size);
  for (int rank = 0; rank < size; ++rank) ASSERT_TRUE(ranks.wait_for_mark("joined-" + std::to_string(rank)));
  const pid_t victim = ranks.pid(1);
  ranks.signal(1, SIGKILL);
  std::vector<ProcessOutcome> survivors;
  for (int rank = 0; rank < size; ++rank) {
    if (rank != 1) survivors.push_back(ranks.wait(rank));
  }
  for (const ProcessOutcome& outcome : survivors) {
    ASSERT_TRUE(outcome.ended) << outcome.output;
    EXPECT_EQ(outcome.exit_code, code_of(StatusCode::kPeerDied)) << outcome.output;
    expect_in(outcome.output, "rank 1 has ended (pid " + std::to_string(victim));
    expect_in(outcome.output, "killed by signal 9");
  }
  EXPECT_EQ(reports(survivors, "has ended"), 1);
}

TEST(ProcessFaultsTest, ReductionsAreExactAcrossProcesses) {
  RankProcesses ranks("all_dtypes", 3);
  for (int rank = 0; rank < 3; ++rank) {
    const ProcessOutcome outcome = ranks.wait(rank, std::chrono::seconds(110));
    ASSERT_TRUE(outcome.ended);
    EXPECT_EQ(outcome.exit_code, kGood) << outcome.output;
  }
}

TEST(ProcessFaultsTest, AKilledRankIsNamedWithPidAndSignal) { expect_death_is_told("small_calls", 3); }

TEST(ProcessFaultsTest, AKilledRankIsNamedWhenItDiesAmongLargeCopies) {
  for (int round = 0; round < 5; ++round) expect_death_is_told("large_calls", 3);
}

TEST(ProcessFaultsTest, AKilledRankIsNamedToWhoWaitsForItsMessages) { expect_death_is_told("messages", 3); }

TEST(ProcessFaultsTest, AKilledRankIsNamedToWhoWaitsForItToAssemble) { expect_death_is_told("assembles", 3); }

TEST(ProcessFaultsTest, AnExitIsNamedWithItsCode) {
  RankProcesses ranks("leaves", 3);
  for (const int rank : {0, 2}) {
    const ProcessOutcome outcome = ranks.wait(rank);
    ASSERT_TRUE(outcome.ended);
    EXPECT_EQ(outcome.exit_code, code_of(StatusCode::kPeerDied)) << outcome.output;
    expect_in(outcome.output,
              "rank 1 has ended (pid " + std::to_string(ranks.pid(1)) + ", exited with code 7)");
  }
}

TEST(ProcessFaultsTest, AnExitAfterTheLastCallIsNoError) {
  RankProcesses ranks("ends_early", 2);
  EXPECT_EQ(ranks.wait(1).exit_code, kGood);
  ranks.set_mark("gone");
  const ProcessOutcome outcome = ranks.wait(0);
  EXPECT_EQ(outcome.exit_code, kGood) << outcome.output;
}

TEST(ProcessFaultsTest, AStoppedRankEndsInTheTimeout) {
  for (const char* program : {"small_calls", "large_calls"}) {
    RankProcesses ranks(program, 2);
    for (int rank = 0; rank < 2; ++rank) ASSERT_TRUE(ranks.wait_for_mark("joined-" + std::to_string(rank)));
    ranks.signal(1, SIGSTOP);
    const ProcessOutcome outcome = ranks.wait(0);
    ASSERT_TRUE(outcome.ended);
    EXPECT_EQ(outcome.exit_code, code_of(StatusCode::kTimeout)) << outcome.output;
    expect_in(outcome.output, "2.0 s");
    // Woken up it finds the group in error.
    ranks.signal(1, SIGCONT);
    const ProcessOutcome late = ranks.wait(1);
    ASSERT_TRUE(late.ended);
    EXPECT_EQ(late.exit_code, code_of(StatusCode::kTimeout)) << late.output;
  }
}

TEST(ProcessFaultsTest, ARankThatNeverComesIsNamedAtCreation) {
  RankProcesses ranks("never_creates", 2);
  const ProcessOutcome outcome = ranks.wait(0);
  EXPECT_EQ(outcome.exit_code, 99);
  expect_in(outcome.output, "rank 1 did not come in time");
}

}  // namespace
}  // namespace neuron
