// run_ranks: one body for each rank, as processes or as threads of this process, and nobody left behind.
#pragma once

#include <chrono>
#include <functional>
#include <string>

#include "engine/collectives/bootstrap.h"

namespace neuron {

struct RankLaunch {
  std::string program;  // for messages; process r shows as "program:r"
  int ranks = 1;
  bool processes = true;
  // What the others have, once one has failed, to learn of it and to end; then they are killed. Processes
  // only.
  std::chrono::milliseconds grace = std::chrono::seconds(5);
};

// False: something was wrong, and has been said. May throw RankFailure.
using RankBody = std::function<bool(int rank, Bootstrap& bootstrap)>;

// Runs the bodies and waits for all. True when every one gave true. Failures, and ranks that a signal ended,
// are named on stderr; what only follows from another rank's end is not repeated.
//
// Processes are forked: the caller must not have used a core yet, nor have other threads. They die with the
// caller, however it ends. Threads share its fate anyway.
bool run_ranks(const RankLaunch& launch, const RankBody& body);

}  // namespace neuron
