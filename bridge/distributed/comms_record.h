// CommsRecord: one call as torch's profiler, its traces and its execution traces know it, the operator
// "record_param_comms".
//
// Lives while the call is submitted, or waited for; to be made only while somebody listens
// (at::hasCallbacks()). Names and fields are those of ProcessGroupNCCL's calls, which analyzers of traces
// read: "allreduce", "_allgather_base", "send", "wait".
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <ATen/record_function.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <cstdint>
#include <string>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <vector>

#include "bridge/distributed/flight_record.h"

namespace neuron::bridge {

// As ProcessGroupNCCL names a call of this type.
std::string comms_name(c10d::OpType type);

struct CommsCall {
  std::string name;
  int rank = 0;                // of this process in the group; for a message, the peer's
  std::int64_t sequence = -1;  // -1: messages have none that both sides know
  bool point_to_point = false;
  bool async = true;
  std::vector<at::Tensor> inputs, outputs;
  std::vector<std::int64_t> input_splits, output_splits;
};

class CommsRecord {
 public:
  CommsRecord(const RecordedGroup& group, CommsCall call);
  CommsRecord(const CommsRecord&) = delete;
  CommsRecord& operator=(const CommsRecord&) = delete;

 private:
  const CommsCall call_;
  const std::vector<c10::IValue> arguments_;  // the listeners look at them until the end
  const c10::DebugInfoGuard info_;
  at::RecordFunction function_;
};

}  // namespace neuron::bridge
