// Execution: one collective of one rank, from the head of its stream to its end. Internal to this folder.
//
//   publish the call -> wait until all ranks have -> check that the calls fit
//     small (every input is in its record):  compute the own output from the records; done
//     large:  claim segments of the own lane, then of the others'; whoever has a processor works
//             -> wait until all segments are done
//   finish: the slot may be used again
#pragma once

#include <chrono>
#include <cstdint>

#include "engine/base/status.h"
#include "engine/collectives/collective.h"
#include "engine/collectives/group.h"

namespace neuron {

struct ExecutionOutcome {
  Status status;
  // After an error: a peer may still be writing to the request's buffers; they must be kept (quarantine.h).
  bool buffers_in_use = false;
};

// Blocks until the collective is done or has failed. An error is the group's.
// Requires: `sequence` was taken in order, and `request` is valid.
ExecutionOutcome execute_collective(Group& group, std::uint64_t sequence, const CollectiveRequest& request,
                                    std::chrono::nanoseconds timeout);

}  // namespace neuron
