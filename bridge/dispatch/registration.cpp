// Which operators go through plans: chosen once, when the module is loaded, from what the installed torch
// has.
//
// A backend fallback alone never sees most operators: for PrivateUse1 the dispatcher prefers their
// CompositeExplicitAutograd(NonFunctional) kernels, which would run a meta step on every call and split
// foreach operators into hundreds. So each operator with a kernel for the CPU, or with such a composite, gets
// a kernel of ours, unless it is a view (views/) or written out in bridge/ops. Operators without either keep
// their decomposition.
#include <torch/library.h>

#include <memory>
#include <string>
#include <unordered_map>
#include <unordered_set>

#include "bridge/dispatch/execute.h"
#include "bridge/dispatch/operators.h"
#include "bridge/dispatch/unboxed_kernel.h"
#include "bridge/dispatch/widened_kernel.h"
#include "bridge/ops/own_operators.h"

namespace neuron::bridge {

namespace {

// For any signature.
class BoxedKernel final : public c10::OperatorKernel {
 public:
  explicit BoxedKernel(const c10::OperatorHandle& handle) : operator_(handle) {}
  void operator()(const c10::OperatorHandle& /*op*/, c10::DispatchKeySet /*keys*/, torch::jit::Stack* stack) {
    Operator& known = operator_.get();
    execute(known.info, known.plans, *stack);
  }

 private:
  LazyOperator operator_;
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

template <typename Signature>
torch::CppFunction unboxed(const c10::OperatorHandle& op) {
  return torch::CppFunction(UnboxedKernel<Signature>(op));
}

// The schema in short: T a tensor, W one that is written to, S a scalar, ? anything else; "TTS>T".
std::string shape_of(const c10::FunctionSchema& schema) {
  const auto code = [](const c10::Argument& argument) {
    const bool written = argument.alias_info() != nullptr && argument.alias_info()->isWrite();
    if (argument.type()->kind() == c10::TypeKind::TensorType) return written ? 'W' : 'T';
    return argument.type()->kind() == c10::TypeKind::NumberType ? 'S' : '?';
  };
  std::string shape;
  for (const c10::Argument& argument : schema.arguments()) shape += code(argument);
  shape += '>';
  for (const c10::Argument& result : schema.returns()) shape += code(result);
  return shape;
}

// The signatures of pointwise operators, in place and not, and of matrix products.
torch::CppFunction kernel_for(const c10::OperatorHandle& op) {
  using T = const at::Tensor&;
  using W = at::Tensor&;
  using S = const at::Scalar&;
  using Make = torch::CppFunction (*)(const c10::OperatorHandle&);
  static const std::unordered_map<std::string, Make> kUnboxed = {
      {"T>T", &unboxed<at::Tensor(T)>},
      {"TT>T", &unboxed<at::Tensor(T, T)>},
      {"TTT>T", &unboxed<at::Tensor(T, T, T)>},
      {"TS>T", &unboxed<at::Tensor(T, S)>},
      {"TSS>T", &unboxed<at::Tensor(T, S, S)>},
      {"TTS>T", &unboxed<at::Tensor(T, T, S)>},
      {"TTTSS>T", &unboxed<at::Tensor(T, T, T, S, S)>},
      {"W>W", &unboxed<at::Tensor&(W)>},
      {"WT>W", &unboxed<at::Tensor&(W, T)>},
      {"WS>W", &unboxed<at::Tensor&(W, S)>},
      {"WTS>W", &unboxed<at::Tensor&(W, T, S)>},
  };
  if (auto widened = widened_kernel(op)) return *std::move(widened);
  const auto found = kUnboxed.find(shape_of(op.schema()));
  if (found != kUnboxed.end()) return found->second(op);
  return torch::CppFunction::makeFromBoxedFunctor(std::make_unique<BoxedKernel>(op));
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  auto& dispatcher = c10::Dispatcher::singleton();
  for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
    const auto op = dispatcher.findOp(name);
    if (!op || !goes_through_plans(*op)) continue;
    m.impl(c10::toString(name).c_str(), kernel_for(*op));
  }
}

}  // namespace

}  // namespace neuron::bridge
