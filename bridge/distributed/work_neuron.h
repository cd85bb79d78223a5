// WorkNeuron: one call of this rank as torch.distributed sees it, with the semantics of ProcessGroupNCCL's.
//
// wait() orders the calling thread's current stream after the work and returns at once; it raises what is
// already known to have failed. wait(timeout), and every wait() of a barrier, blocks the host and raises the
// outcome. get_future() is complete from the start and carries device events, so that then() runs at once
// with its stream set; an all-gather into a list gives one tensor there, a row per rank. The outcome is in
// get_future_result(). Holds the user's output tensors (never on a stream's thread), not the inputs: their
// memory is kept by record_use.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <vector>

#include "bridge/distributed/flight_record.h"
#include "engine/collectives/work.h"
#include "engine/device/stream.h"

namespace neuron::bridge {

struct CommsCall;

// Inside a class derived from c10d::Work, the plain name means that.
using EngineWork = Work;

// A receive into a tensor that is not its own buffer.
struct LateCopy {
  at::Tensor tensor;
  at::Tensor buffer;
};

struct WorkParts {
  // What was submitted, in order: usually one.
  c10::SmallVector<std::shared_ptr<EngineWork>, 1> works;
  // Copies back to the user's tensors after the works, or null.
  Stream* copied_on = nullptr;
  StreamPosition copied_at = 0;
  std::vector<at::Tensor> outputs;
  // Point-to-point works run on no stream: their copies are enqueued by the first synchronize().
  c10::SmallVector<LateCopy, 1> late_copies;
  // While a profiler runs: the group, which the record of wait() names. Else null.
  std::shared_ptr<const RecordedGroup> profiled_group;
  // Of an unbatched message: set when the user has waited for it or has seen it completed. Else null.
  std::shared_ptr<std::atomic<bool>> waited_for;

  bool on_streams() const;  // all works run on streams
};

class WorkNeuron final : public c10d::Work {
 public:
  enum class HostWait { kOnRequest, kAlways };

  // `title` names the call for torch's profiler ("neuron:all_reduce"); null when nobody listens.
  WorkNeuron(int rank, c10d::OpType type, const char* title,
             const std::optional<std::vector<at::Tensor>>& inputs, HostWait host_wait,
             c10::DeviceIndex device);

  // Once, when everything is enqueued; before anybody else sees the work. The current stream is ordered after
  // the works.
  void set_parts(WorkParts parts);
  const WorkParts& parts() const { return parts_; }
  // Makes the Future that get_future() gives, with events recorded now.
  void complete_future();
  // The Future's value is a copy, which is made for those who ask.
  bool future_is_stacked() const;

  // Of a message that was waited for: true at once. torch's documents say so ("the output can be utilized on the
  // default stream without further synchronization"), and code written for gloo expects it of isend and irecv.
  bool isCompleted() override;
  bool isSuccess() const override;
  // The rank that a receive got its message from; blocks the host until it is there.
  int sourceRank() const override;
  std::exception_ptr exception() const override;
  std::vector<at::Tensor> result() override { return parts_.outputs; }
  void synchronize() override;
  bool wait(std::chrono::milliseconds timeout) override;
  void blockCurrentStream() override { synchronize(); }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
  c10::intrusive_ptr<c10::ivalue::Future> getFutureResult() override;
  float getDuration() const override;
  std::uint64_t getSequencenumber() const override;

 private:
  bool completed() const;
  Status outcome() const;  // the first failure known so far
  static void raise_failure(const EngineWork& work);
  void wait_on_host(Deadline deadline, std::chrono::milliseconds timeout) const;
  void note_waited() const;
  CommsCall waiting() const;

  void order_after(Stream& stream);
  at::Tensor stacked_outputs() const;

  const HostWait host_wait_;
  const c10::DeviceIndex device_;
  WorkParts parts_;
  mutable std::mutex parts_mutex_;  // the late copies and what follows from them
  std::mutex futures_mutex_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;
  c10::intrusive_ptr<c10::ivalue::Future> future_result_;
};

}  // namespace neuron::bridge
