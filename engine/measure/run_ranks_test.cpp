// Ranks that end badly, by any way, are named, and none of the others is left.
#include "engine/measure/run_ranks.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "engine/measure/rank_failure.h"

namespace neuron {
namespace {

// Where the ranks of a test say which process they are.
class RunRanksTest : public testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    std::string pattern = (std::filesystem::temp_directory_path() / "run-ranks-XXXXXX").string();
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    directory_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  static RankLaunch launch(int ranks, bool processes) {
    RankLaunch launch;
    launch.program = "test";
    launch.ranks = ranks;
    launch.processes = processes;
    launch.grace = std::chrono::milliseconds(200);
    return launch;
  }

  void note_pid(int rank) const {
    std::ofstream(directory_ + "/" + std::to_string(rank)) << getpid() << std::flush;
  }
  pid_t pid_of(int rank) const {
    pid_t pid = 0;
    std::ifstream(directory_ + "/" + std::to_string(rank)) >> pid;
    return pid;
  }

  std::string directory_;
};

TEST_P(RunRanksTest, AllGoodIsGood) {
  EXPECT_TRUE(run_ranks(launch(3, GetParam()), [](int rank, Bootstrap& bootstrap) {
    or_fail(bootstrap.set("key" + std::to_string(rank), "value"));
    const auto next =
        bootstrap.get("key" + std::to_string((rank + 1) % 3), Deadline::after(std::chrono::seconds(30)));
    return or_fail(next) == "value";
  }));
}

TEST_P(RunRanksTest, OneFalseIsFalse) {
  EXPECT_FALSE(run_ranks(launch(3, GetParam()), [](int rank, Bootstrap&) { return rank != 1; }));
}

TEST_P(RunRanksTest, AFailureIsNamedWithItsRankUnlessItFollowsFromAnother) {
  testing::internal::CaptureStderr();
  EXPECT_FALSE(run_ranks(launch(2, GetParam()), [](int rank, Bootstrap&) -> bool {
    throw RankFailure(rank == 0 ? Status(StatusCode::kTimeout, "waited")
                                : Status(StatusCode::kPeerDied, "gone"));
  }));
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("test: rank 0: waited"), std::string::npos) << said;
  EXPECT_EQ(said.find("gone"), std::string::npos) << said;
}

INSTANTIATE_TEST_SUITE_P(Both, RunRanksTest, testing::Bool(),
                         [](const auto& one) { return one.param ? "Processes" : "Threads"; });

TEST_F(RunRanksTest, AKilledRankIsNamedAndTheOthersDoNotOutliveTheGrace) {
  testing::internal::CaptureStderr();
  EXPECT_FALSE(run_ranks(launch(3, true), [this](int rank, Bootstrap& bootstrap) {
    note_pid(rank);
    or_fail(bootstrap.set("there" + std::to_string(rank), ""));
    for (int other = 0; other < 3; ++other)
      (void)or_fail(bootstrap.get("there" + std::to_string(other), Deadline::never()));
    if (rank == 1) (void)raise(SIGKILL);
    (void)bootstrap.get("never set", Deadline::never()).is_ok();
    return true;
  }));
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("rank 1 (pid " + std::to_string(pid_of(1)) + ") was ended by signal 9"),
            std::string::npos)
      << said;
  for (const int rank : {0, 2}) {
    EXPECT_NE(
        said.find("rank " + std::to_string(rank) + " (pid " + std::to_string(pid_of(rank)) + ") did not end"),
        std::string::npos)
        << said;
  }
  for (const int rank : {0, 1, 2}) EXPECT_EQ(kill(pid_of(rank), 0), -1) << "rank " << rank << " is left";
}

}  // namespace
}  // namespace neuron
