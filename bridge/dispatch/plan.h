// Plan: how calls that look alike are run. What a NEFF is on hardware: made at the first call, found at later
// ones.
//
// A plan is immutable but for its pool of recycled commands and what runs teach about the kernel's allocations.
// Thread-safe.
#pragma once

#include <c10/util/SmallVector.h>

#include <atomic>
#include <memory>
#include <optional>
#include <vector>

#include "bridge/dispatch/call_key.h"
#include "bridge/dispatch/command_pool.h"
#include "bridge/dispatch/op_info.h"

namespace neuron::bridge {

// Which allocation of its size, in a run of the kernel, becomes the output, from 0; nothing until a run has shown it.
// Written by the streams' threads.
class AllocationOrdinal {
 public:
  AllocationOrdinal() = default;
  AllocationOrdinal(const AllocationOrdinal& other) : value_(other.value_.load(std::memory_order_relaxed)) {}
  AllocationOrdinal& operator=(const AllocationOrdinal&) = delete;

  std::optional<std::size_t> get() const {
    const std::int64_t value = value_.load(std::memory_order_relaxed);
    return value < 0 ? std::nullopt : std::optional(static_cast<std::size_t>(value));
  }
  void learn(std::size_t ordinal) {
    value_.store(static_cast<std::int64_t>(ordinal), std::memory_order_relaxed);
  }

 private:
  std::atomic<std::int64_t> value_{-1};
};

// A tensor that the call returns and we allocate beforehand.
struct OutputSpec {
  c10::SmallVector<std::int64_t, 5> sizes, strides;
  at::ScalarType dtype;
  std::size_t nbytes;
  bool defined;  // some operators return an undefined tensor for what was not asked
  mutable AllocationOrdinal ordinal{};
};

// An out= argument that the call gives another size; the strides are known after the rehearsal.
struct Resize {
  std::size_t argument;
  c10::SmallVector<std::int64_t, 5> sizes, strides;
};

struct Plan : std::enable_shared_from_this<Plan> {
  explicit Plan(const OpInfo& operator_info);
  ~Plan();

  const OpInfo& info;
  // False: such calls drain the stream and run on the caller (see execute.h); the reason is for reports.
  bool asynchronous = false;
  const char* reason = nullptr;
  // Learnt from the kernel itself, not from the meta function.
  bool is_rehearsed = false;
  // out= arguments that the call gives another size. Resize them, then look again.
  std::vector<Resize> resizes;
  bool returns_list = false;  // one Tensor[] return
  std::vector<OutputSpec> outputs;

  // A command made for this plan, recycled or new.
  std::unique_ptr<PlanCommand> take_command(const CallKey& key, Arguments arguments);

  CommandPool commands;
};
using PlanPtr = std::shared_ptr<Plan>;

// The plan for a call that was never seen, from what is learnt about it (lesson.h); checks the overlap that the kernel
// would have checked. Never raises for a bad call: such a plan is not asynchronous, and running it raises the kernel's
// own error.
PlanPtr make_plan(const OpInfo& info, const CallKey& key, Arguments arguments);

}  // namespace neuron::bridge
