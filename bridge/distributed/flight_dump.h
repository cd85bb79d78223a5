// flight_dump: the flight recorder's contents in the format of PyTorch's flight recorder, version 2.10.
//
// A pickled dict with the keys that ProcessGroupNCCL writes, so that PyTorch's own analyzer
// (torch.distributed.flight_recorder.fr_trace) reads it. Where we differ:
// - names begin with "xccl:": the analyzer refuses a backend that it does not know.
// - messages are numbered from kFirstMessage: it takes a collective and a message of one number for a batch.
// - a call that failed stays "started" or "scheduled" and is "retired", as one that timed out does there.
// - each entry has one key more, "neuron": the call's own name, reduce_op, root, tag; and so has the dump:
//   rank, world size, process, reason and time, and the groups' errors.
#pragma once

#include <cstdint>
#include <string>

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

}  // namespace neuron::bridge
