// Execute: the one path of a call. Key -> plan -> outputs allocated -> command on the current stream.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/stack.h>
#include <c10/util/SmallVector.h>

#include "bridge/dispatch/op_info.h"
#include "bridge/dispatch/plan_cache.h"
#include "bridge/runtime/generator.h"

namespace neuron::bridge {

// What a call returns, unless it returns arguments of its own.
struct Outputs {
  c10::SmallVector<at::Tensor, 4> tensors;
  bool is_list = false;  // one Tensor[]
};

// Queues the call and gives its outputs and null; or the reason for which it has to be drained. May be called from any
// thread.
const char* try_submit(const OpInfo& info, PlanCache& cache, Arguments arguments, Outputs& outputs);

// Replaces the operator's arguments on the stack by its results. May be called from any thread.
void execute(const OpInfo& info, PlanCache& cache, torch::jit::Stack& stack);

// Waits for the current stream and runs the operator's CPU kernel on the caller: for results that the host
// needs, for kernels in Python, for calls that no plan can be made for. Counted under `reason`.
void execute_drained(const OpInfo& info, const char* reason, torch::jit::Stack& stack);

// What a CPU kernel draws from in the place of the device's generator: the same on either path.
at::Generator cpu_generator(const PhiloxState& state);

}  // namespace neuron::bridge
