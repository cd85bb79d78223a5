// Which operators go through plans: chosen once, when the module is loaded, from what the installed torch
// has.
//
// A backend fallback alone never sees most operators: for PrivateUse1 the dispatcher prefers their
// CompositeExplicitAutograd(NonFunctional) kernels, which would run a meta step on every call and split
// foreach operators into hundreds. So each operator with a kernel for the CPU, or with such a composite, gets
// a kernel of ours, unless it is a view (views/) or written out in bridge/ops. Operators without either keep
// their decomposition.
#include <torch/library.h>

#include <atomic>
#include <unordered_set>

#include "bridge/dispatch/execute.h"
#include "bridge/dispatch/operators.h"
#include "bridge/ops/own_operators.h"

namespace neuron::bridge {

namespace {

// One for each registered operator, so that a call finds its plans without a look-up.
class PlannedKernel final : public c10::OperatorKernel {
 public:
  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet /*keys*/, torch::jit::Stack* stack) {
    Operator* known = operator_.load(std::memory_order_acquire);
    if (known == nullptr) {
      known = &operator_of(op);
      operator_.store(known, std::memory_order_release);
    }
    execute(known->info, known->plans, *stack);
  }

 private:
  std::atomic<Operator*> operator_{nullptr};
};

// Composites that would split one call into many, that look for a kernel of this device and find none, or
// that call their out= form on an empty tensor, which loses the strides.
bool is_taken_composite(const c10::OperatorName& name) {
  static const std::unordered_set<std::string> kTaken = {
      "aten::convolution", "aten::convolution_backward", "aten::abs",
      "aten::logical_and", "aten::logical_or",           "aten::logical_xor",
      "aten::logical_not", "aten::nan_to_num",           "aten::complex",
      "aten::polar",       "aten::conj_physical_",       "aten::_conj_physical",
      "aten::mode"};
  return name.name.rfind("aten::_foreach_", 0) == 0 || kTaken.count(name.name) > 0;
}

bool returns_view(const c10::FunctionSchema& schema) {
  for (const auto& result : schema.returns()) {
    if (result.alias_info() != nullptr && !result.alias_info()->isWrite()) return true;
  }
  return false;
}

bool goes_through_plans(const c10::OperatorHandle& op) {
  const auto& name = op.operator_name();
  if (name.name.rfind("aten::", 0) != 0 || !op.hasSchema() || is_own_operator(name) ||
      returns_view(op.schema())) {
    return false;
  }
  // as_strided_ and its kin change the tensor itself: an alias of it would be changed in its place.
  if (op.hasTag(at::Tag::inplace_view)) return false;
  if (op.hasKernelForDispatchKey(c10::DispatchKey::PrivateUse1)) return false;
  if (op.hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd)) return false;
  if (op.hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutogradNonFunctional)) return true;
  // Before composites: native_layer_norm and a few others have both, and their composite is another
  // algorithm.
  if (op.hasKernelForDispatchKey(c10::DispatchKey::CPU)) return true;
  return op.hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutograd) && is_taken_composite(name);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  auto& dispatcher = c10::Dispatcher::singleton();
  for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
    const auto op = dispatcher.findOp(name);
    if (!op || !goes_through_plans(*op)) continue;
    const std::string full = name.overload_name.empty() ? name.name : name.name + "." + name.overload_name;
    m.impl(full.c_str(), torch::CppFunction::makeFromBoxedFunctor(std::make_unique<PlannedKernel>()));
  }
}

}  // namespace

}  // namespace neuron::bridge
