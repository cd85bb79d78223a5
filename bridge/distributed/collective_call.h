// CollectiveCall: one call of torch.distributed on its way to the engine.
#pragma once

#include <ATen/core/Tensor.h>

#include <chrono>
#include <cstddef>
#include <memory>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <vector>

#include "bridge/distributed/comms_record.h"
#include "bridge/distributed/flight_recorder.h"
#include "bridge/distributed/reduction.h"
#include "bridge/distributed/staging.h"
#include "bridge/distributed/tensor_checks.h"
#include "bridge/distributed/work_neuron.h"
#include "engine/collectives/communicator.h"

namespace neuron::bridge {

class CollectiveCall {
 public:
  // `title` is a literal: how profilers name the call ("neuron:all_reduce"). A timeout below zero means the
  // group's.
  CollectiveCall(const CallContext& context, c10d::OpType type, const char* title,
                 std::chrono::milliseconds timeout, bool async);

  const CallContext& context() const { return context_; }

  // Starts a request; the following calls fill it. Several make a unit.
  CollectiveCall& request(CollectiveKind kind, c10::ScalarType dtype, std::size_t count);
  CollectiveCall& root(std::int64_t rank);
  CollectiveCall& reduce_with(const Reduction& reduction);
  CollectiveCall& input(const at::Tensor& tensor);
  CollectiveCall& input_parts(const std::vector<at::Tensor>& tensors);
  // The user's output; also what Work.result() and the Future give.
  CollectiveCall& output(const at::Tensor& tensor);
  CollectiveCall& output_parts(const std::vector<at::Tensor>& tensors);
  // One tensor that is read and written.
  CollectiveCall& in_place(const at::Tensor& tensor);
  // Slices of one tensor along dimension 0, by elements.
  CollectiveCall& input_slices(const at::Tensor& tensor, const std::vector<std::size_t>& counts);
  CollectiveCall& output_slices(const at::Tensor& tensor, const std::vector<std::size_t>& counts);

  // Of an all-to-all, by dimension 0, as the caller gave them: for profilers.
  CollectiveCall& splits(const std::vector<std::int64_t>& input, const std::vector<std::int64_t>& output);
  CollectiveCall& wait_on_host();  // the Work's wait() blocks the host

  // Enqueues everything on the path that the current stream chooses. Raises before a sequence number is
  // taken, or the group's error. Requires: at least one request.
  WorkParts submit(Communicator& communicator, const std::shared_ptr<RecordedGroup>& group);
  // The Work around what submit() gave.
  c10::intrusive_ptr<WorkNeuron> make_work(WorkParts parts) const;

 private:
  CollectiveRequest& current() { return requests_.back(); }
  void show(const at::Tensor& tensor);
  CommsCall profiled_call(std::uint64_t sequence) const;
  TensorShapes::Uneven uneven_parts() const;
  void record(const std::shared_ptr<RecordedGroup>& group, const std::shared_ptr<Work>& work,
              PythonStack stack);

  CallContext context_;
  c10d::OpType type_;
  const char* title_;
  std::chrono::milliseconds timeout_;
  bool async_;
  WorkNeuron::HostWait host_wait_ = WorkNeuron::HostWait::kOnRequest;
  Staging staging_;
  std::vector<CollectiveRequest> requests_;
  std::vector<at::Tensor> outputs_;
  std::vector<at::Tensor> profiled_;                        // the inputs, while a profiler runs
  std::vector<std::int64_t> input_splits_, output_splits_;  // likewise
  // For the flight recorder; empty when that is off.
  const bool recorded_;
  TensorShapes input_shapes_, output_shapes_;
};

}  // namespace neuron::bridge
