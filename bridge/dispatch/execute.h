// Execute: the one path of a call. Key -> plan -> outputs allocated -> command on the current stream.
#pragma once

#include <ATen/core/stack.h>

#include "bridge/dispatch/op_info.h"
#include "bridge/dispatch/plan_cache.h"

namespace neuron::bridge {

// Replaces the operator's arguments on the stack by its results. May be called from any thread.
void execute(const OpInfo& info, PlanCache& cache, torch::jit::Stack& stack);

// Waits for the current stream and runs the operator's CPU kernel on the caller: for results that the host needs, for
// kernels in Python, for calls that no plan can be made for. Counted under `reason`.
void execute_drained(const OpInfo& info, const char* reason, torch::jit::Stack& stack);

}  // namespace neuron::bridge
