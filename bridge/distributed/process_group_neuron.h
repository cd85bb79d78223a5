// ProcessGroupNeuron: the c10d backend "neuron". Open this header first.
//
// Each call is checked, translated to engine requests, submitted on the path that the current stream chooses,
// and given back as a WorkNeuron; nothing waits for the device except barrier. Calls may come from any
// thread, without Python's global lock; members of a group match calls by their order.
//
// The path (docs/streams_and_events): on the default stream, in its order ("compiled"). On another stream
// with HostCC: on that stream, for all-reduce, all-gather and reduce-scatter. Otherwise routed to the default
// stream and ordered with the submitting stream on both sides.
//
// Errors of the arguments are raised before a sequence number is taken. Errors of the group are permanent:
// every later call and wait raises DistBackendError with the same message.
#pragma once

#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <unordered_map>
#include <vector>

#include "bridge/distributed/collective_call.h"
#include "bridge/distributed/flight_recorder.h"
#include "bridge/distributed/join.h"
#include "bridge/distributed/messages_in_flight.h"
#include "bridge/distributed/work_neuron.h"
#include "engine/collectives/communicator.h"

namespace neuron::bridge {

using Tensors = std::vector<at::Tensor>;
using WorkPtr = c10::intrusive_ptr<c10d::Work>;

// A message that has been checked and not been posted.
struct PendingMessage {
  PointToPointRequest request;
  at::Tensor tensor;  // the user's
  at::Tensor buffer;  // what is sent or received into
  PythonStack stack;
};

class ProcessGroupNeuron final : public c10d::Backend {
 public:
  struct Options final : c10d::Backend::Options {
    explicit Options(std::chrono::milliseconds limit = kBackendDefaultTimeout)
        : c10d::Backend::Options("neuron", limit) {}
  };

  // Collective over the members (see join.h). `options` carries timeout, name and global ranks.
  ProcessGroupNeuron(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                     c10::intrusive_ptr<Options> options);
  // Leaves the group if nobody has called shutdown().
  ~ProcessGroupNeuron() override;

  const std::string getBackendName() const override { return "neuron"; }
  bool supportsSplitting() const override { return true; }
  bool supportsCoalescing() const override { return true; }
  bool supportsTensorAlloc(c10::DeviceIndex device) override { return device == device_; }
  at::Tensor allocateTensor(long size, at::TensorOptions options) override;
  std::shared_ptr<c10::Allocator> getMemAllocator() override;
  c10::intrusive_ptr<c10d::Backend::Options> getBackendOptions() override { return options_; }

  WorkPtr broadcast(Tensors& tensors, const c10d::BroadcastOptions& opts) override;
  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& opts) override;
  WorkPtr allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& opts) override;
  WorkPtr reduce(Tensors& tensors, const c10d::ReduceOptions& opts) override;
  WorkPtr allgather(TensorLists& outputs, Tensors& inputs, const c10d::AllgatherOptions& opts) override;
  WorkPtr _allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& opts) override;
  WorkPtr allgather_coalesced(TensorLists& outputs, Tensors& inputs,
                              const c10d::AllgatherOptions& opts) override;
  WorkPtr allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::AllgatherOptions& opts) override;
  WorkPtr gather(TensorLists& outputs, Tensors& inputs, const c10d::GatherOptions& opts) override;
  WorkPtr scatter(Tensors& outputs, TensorLists& inputs, const c10d::ScatterOptions& opts) override;
  WorkPtr reduce_scatter(Tensors& outputs, TensorLists& inputs,
                         const c10d::ReduceScatterOptions& opts) override;
  WorkPtr _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                               const c10d::ReduceScatterOptions& opts) override;
  WorkPtr reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::ReduceScatterOptions& opts) override;
  WorkPtr alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& opts) override;
  WorkPtr alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<std::int64_t>& output_splits,
                        std::vector<std::int64_t>& input_splits, const c10d::AllToAllOptions& opts) override;
  WorkPtr barrier(const c10d::BarrierOptions& opts) override;
  void monitoredBarrier(const c10d::BarrierOptions& opts, bool wait_all_ranks) override;

  WorkPtr send(Tensors& tensors, int peer, int tag) override;
  WorkPtr recv(Tensors& tensors, int peer, int tag) override;
  WorkPtr recvAnysource(Tensors& tensors, int tag) override;

  // Of the calling thread. Collectives in between are submitted one by one as they come, messages together at
  // the end (their own calls give null); the Work at the end stands for all of them.
  void startCoalescing() override;
  WorkPtr endCoalescing() override;

  // Numbers start alike on all members; there is nothing to agree on.
  void setSequenceNumberForGroup() override {}
  std::uint64_t getSequenceNumberForGroup() override;
  void setTimeout(std::chrono::milliseconds timeout) override;
  void enableCollectivesTiming() override {}  // always on
  void eagerConnectSingleDevice(at::Device device) override;
  c10d::ErrorType getError() override;

  // Collective over the parent's members. Null on those that are not in `ranks`.
  c10::intrusive_ptr<c10d::Backend> split(const c10::intrusive_ptr<c10d::Store>& store,
                                          const std::vector<int>& ranks,
                                          const c10::intrusive_ptr<c10d::Backend::Options>& opts) override;

  void abort() override;
  // Waits for this rank's calls in flight (at most the group's timeout), then leaves. Idempotent.
  void shutdown() override;

 private:
  // What one thread has coalesced.
  struct Batch {
    WorkParts collectives;
    std::vector<PendingMessage> messages;
  };

  CallContext context(const char* name) const { return {name, getRank(), getSize(), device_}; }
  std::shared_ptr<Communicator> communicator() const;
  // Enqueues the call and makes its Work.
  WorkPtr launch(CollectiveCall call);
  // Sends or receives one tensor, or adds it to the thread's batch.
  WorkPtr post(const CallContext& call, c10d::OpType type, PointToPointRequest::Direction direction,
               const at::Tensor& tensor, int peer, int tag);
  void post_messages(std::vector<PendingMessage> messages, bool batched, WorkParts& parts);
  void record_messages(std::vector<PendingMessage>& messages, const std::vector<std::shared_ptr<Work>>& works,
                       bool batched);
  // The group as the flight recorder knows it, from its first call on.
  const std::shared_ptr<RecordedGroup>& recorded();
  // The calling thread's batch, between startCoalescing and endCoalescing; else null.
  Batch* open_batch();
  bool spans_default_world() const;

  const c10::intrusive_ptr<Options> options_;
  const std::shared_ptr<Communicator> communicator_;
  const c10::DeviceIndex device_;
  MessagesInFlight in_flight_;
  std::once_flag recorded_once_;
  std::shared_ptr<RecordedGroup> recorded_;
  std::mutex batches_mutex_;
  std::unordered_map<std::thread::id, std::unique_ptr<Batch>> batches_;
};

}  // namespace neuron::bridge
