#include "bridge/ops/composed_layouts.h"

#include "bridge/dispatch/execute.h"
#include "bridge/dispatch/operators.h"

namespace neuron::bridge {

void run_composed(const c10::OperatorHandle& op, c10::DispatchKey cpu_key, const char* what,
                  torch::jit::Stack& stack) {
  const OpInfo& info = operator_of(op).info;
  TORCH_CHECK_NOT_IMPLEMENTED(
      op.hasComputedKernelForDispatchKey(cpu_key), info.name,
      ": neuron runs PyTorch's kernels for the CPU, and this operator has none there for ", what,
      " tensors. Use a strided one (.to_dense(), .to_padded_tensor()).");
  execute_drained(info, "its tensors are not strided", stack);
}

void register_composed(torch::Library& library, c10::DispatchKey key, c10::DispatchKey cpu_key,
                       torch::CppFunction (*kernel)()) {
  auto& dispatcher = c10::Dispatcher::singleton();
  for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
    const auto op = dispatcher.findOp(name);
    if (!op || name.name.rfind("aten::", 0) != 0 || !op->hasSchema() ||
        !op->hasKernelForDispatchKey(cpu_key) || op->hasKernelForDispatchKey(key)) {
      continue;
    }
    library.impl(c10::toString(name).c_str(), kernel());
  }
}

}  // namespace neuron::bridge
