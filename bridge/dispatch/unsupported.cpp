// Quantized tensors on the device: each operator on them that has no kernel of its own for such tensors ends here,
// in the place of the dispatcher's list of back ends.
#include "bridge/dispatch/unsupported.h"

#include <torch/library.h>

namespace neuron::bridge {

namespace {

constexpr const char* kQuantized =
    "quantized tensors. Use a float one (.dequantize()), or do this part on the CPU (.cpu())";
constexpr const char* kOpaque = "mkldnn tensors. Use a strided one (.to_dense()), or do this part on the CPU";

[[noreturn]] void refuse(const std::string& op, const char* what) {
  TORCH_CHECK_NOT_IMPLEMENTED(false, op, ": neuron does not take ", what, ".");
}

void refuse_quantized(const c10::OperatorHandle& op, c10::DispatchKeySet /*keys*/,
                      torch::jit::Stack* /*stack*/) {
  refuse(c10::toString(op.operator_name()), kQuantized);
}

TORCH_LIBRARY_IMPL(_, QuantizedPrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&refuse_quantized>());
}

}  // namespace

bool is_plain(const at::Tensor& tensor) {
  return !tensor.defined() ||
         (tensor.layout() == at::kStrided && !tensor.is_nested() && !tensor.is_quantized());
}

void check_layout(const char* op, const at::Tensor& tensor) {
  if (tensor.is_quantized()) refuse(op, kQuantized);
  if (tensor.layout() == at::kMkldnn) refuse(op, kOpaque);
}

void check_has_cpu_kernel(const OpInfo& info) {
  TORCH_CHECK_NOT_IMPLEMENTED(info.op.hasComputedKernelForDispatchKey(c10::DispatchKey::CPU), info.name,
                              ": neuron runs PyTorch's kernels for the CPU, and this operator has none "
                              "there. Register a kernel for the CPU "
                              "(torch.library), or use another operator.");
}

}  // namespace neuron::bridge
