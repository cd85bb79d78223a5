// flight_dump: the flight recorder's contents in the format of PyTorch's flight recorder, version 2.10.
//
// A pickled dict with the keys that ProcessGroupNCCL writes, so that PyTorch's own analyzer
// (torch.distributed.flight_recorder.fr_trace) reads it. Where we differ:
// - names begin with "xccl:": the analyzer refuses a backend that it does not know.
// - messages are numbered from kFirstMessage: it takes a collective and a message of one number for a batch.
// - a call that failed stays "started" or "scheduled" and is "retired", as one that timed out does there.
// - each entry and the dump itself have one key more, "neuron": reduce_op, root, tag, the call's own name;
// rank,
//   world size, process, reason and time of the dump, and for each group its error.
#pragma once

#include <cstdint>
#include <string>

#include "engine/base/status.h"

namespace neuron::bridge {

inline constexpr std::uint64_t kFirstMessage = 1'000'000'000;

struct DumpOptions {
  bool collectives = true;
  bool stack_traces = true;
  bool only_active = false;  // leaves out completed calls
  std::string reason = "on request";
};

// The pickle's bytes. Any thread, without Python's global lock; milliseconds for 2000 calls.
std::string flight_dump(const DumpOptions& options);

// Where the dump of this process goes when a group fails: the prefix that the environment gives, then the
// rank in the job. Empty before the first call of any group.
std::string flight_dump_path();

// Replaces the file as a whole: a reader, or whoever ends this process meanwhile, finds all of it or what was
// there before.
Status write_flight_dump(const std::string& path, const std::string& bytes);

}  // namespace neuron::bridge
