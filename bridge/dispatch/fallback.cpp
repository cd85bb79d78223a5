// The backend fallback: everything that has no kernel of ours, custom operators of other libraries included.
// Such a kernel may be written in Python or may look at its data, so the call drains and runs on the caller.
#include <torch/library.h>

#include "bridge/dispatch/execute.h"
#include "bridge/dispatch/operators.h"

namespace neuron::bridge {

namespace {

void fallback(const c10::OperatorHandle& op, c10::DispatchKeySet /*keys*/, torch::jit::Stack* stack) {
  execute_drained(operator_of(op).info, "it has no kernel for neuron", *stack);
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) { m.fallback(torch::CppFunction::makeFromBoxedFunction<&fallback>()); }

}  // namespace

}  // namespace neuron::bridge
