// RankProcesses: ranks as real processes, for tests that kill, stop or leave.
//
// A rank runs this test's own program again (fork alone would inherit locks of threads that it does not
// have), which must call run_rank_program() first thing in main(). What it runs is a RankProgram, found by
// name.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/collectives/communicator.h"
#include "engine/device/core.h"

namespace neuron {

// Inside a rank process.
struct RankProcess {
  int rank;
  int size;
  std::string directory;  // shared by the ranks, for bootstrap and marks
  Core& core;

  // A group of all ranks. Ends the process with a message when it cannot be made.
  std::shared_ptr<Communicator> join(CommunicatorOptions options = {}) const;
  // Tells whoever waits for the mark; any rank, and the test.
  void set_mark(const std::string& name) const;
  bool has_mark(const std::string& name) const;
  std::string mark_path(const std::string& name) const;  // a file that is there when the mark is set
  void wait_for_mark(const std::string& name) const;
};

// Its result is the exit code. Define at namespace scope.
struct RankProgram {
  RankProgram(std::string name, std::function<int(RankProcess&)> body);
};

// The exit code when this process is a rank; otherwise nothing, and the tests go on.
std::optional<int> run_rank_program();

struct ProcessOutcome {
  bool ended = false;  // within the deadline
  int exit_code = -1;  // -1: not by exit
  int signal = 0;
  std::string output;  // stderr
};

class RankProcesses {
 public:
  RankProcesses(const std::string& program, int size);
  // Kills who is left.
  ~RankProcesses();
  RankProcesses(const RankProcesses&) = delete;
  RankProcesses& operator=(const RankProcesses&) = delete;

  pid_t pid(int rank) const { return pids_[static_cast<std::size_t>(rank)]; }
  void signal(int rank, int number) const;
  void set_mark(const std::string& name) const;
  // False: not within the deadline.
  bool wait_for_mark(const std::string& name, std::chrono::seconds limit = std::chrono::seconds(60)) const;
  ProcessOutcome wait(int rank, std::chrono::seconds limit = std::chrono::seconds(60));

 private:
  std::string output_path(int rank) const;
  std::string directory_;
  std::vector<pid_t> pids_;  // 0: collected
};

}  // namespace neuron
