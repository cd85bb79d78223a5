// Sparse, quantized and nested tensors on the device: each operator on them that has no kernel of its own for
// such tensors ends here, in the place of the dispatcher's list of back ends.
#include "bridge/dispatch/unsupported.h"

#include <torch/library.h>

namespace neuron::bridge {

namespace {

constexpr const char* kSparse =
    "sparse tensors. Use a strided one (.to_dense()), or do this part on the CPU (.cpu())";
constexpr const char* kQuantized =
    "quantized tensors. Use a float one (.dequantize()), or do this part on the CPU (.cpu())";
constexpr const char* kNested =
    "nested tensors of the strided layout, which attention of jagged ones makes as well. Make them with "
    "layout=torch.jagged, pad them for attention, or do this part on the CPU";
constexpr const char* kOpaque = "mkldnn tensors. Use a strided one (.to_dense()), or do this part on the CPU";

[[noreturn]] void refuse(const std::string& op, const char* what) {
  TORCH_CHECK_NOT_IMPLEMENTED(false, op, ": neuron does not take ", what, ".");
}

template <const char* const& kWhat>
void refuse_call(const c10::OperatorHandle& op, c10::DispatchKeySet /*keys*/, torch::jit::Stack* /*stack*/) {
  const auto& name = op.operator_name();
  refuse(name.overload_name.empty() ? name.name : name.name + "." + name.overload_name, kWhat);
}

// Jagged tensors take a NotImplementedError for "try another way", and then fail over something else.
void refuse_nested_list(const c10::OperatorHandle& op, c10::DispatchKeySet /*keys*/,
                        torch::jit::Stack* /*stack*/) {
  TORCH_CHECK(false, op.operator_name().name, ": neuron does not take ", kNested, ".");
}

TORCH_LIBRARY_IMPL(_, SparsePrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&refuse_call<kSparse>>());
}
TORCH_LIBRARY_IMPL(_, SparseCsrPrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&refuse_call<kSparse>>());
}
// These have kernels for any back end, which would make a tensor that nothing can be done with (autograd ends the
// process when it cannot ask a nested one for its sizes), or raise an error about another layout.
TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  for (const char* name : {"_sparse_compressed_tensor_unsafe", "sparse_compressed_tensor.comp_plain_value",
                           "sparse_compressed_tensor.comp_plain_value_size"}) {
    m.impl(name, torch::CppFunction::makeFromBoxedFunction<&refuse_call<kSparse>>());
  }
  m.impl("_nested_tensor_from_tensor_list", torch::CppFunction::makeFromBoxedFunction<&refuse_nested_list>());
}
TORCH_LIBRARY_IMPL(aten, SparseCsrPrivateUse1, m) {
  for (const char* name : {"crow_indices", "col_indices", "ccol_indices", "row_indices", "values"}) {
    m.impl(name, torch::CppFunction::makeFromBoxedFunction<&refuse_call<kSparse>>());
  }
}
TORCH_LIBRARY_IMPL(_, QuantizedPrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&refuse_call<kQuantized>>());
}
TORCH_LIBRARY_IMPL(_, NestedTensorPrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&refuse_call<kNested>>());
}

}  // namespace

bool is_plain(const at::Tensor& tensor) {
  return !tensor.defined() ||
         (tensor.layout() == at::kStrided && !tensor.is_nested() && !tensor.is_quantized());
}

void check_plain(const char* op, const at::Tensor& tensor) {
  if (is_plain(tensor)) return;
  if (tensor.is_nested()) refuse(op, kNested);
  if (tensor.is_quantized()) refuse(op, kQuantized);
  refuse(op, tensor.layout() == at::kMkldnn ? kOpaque : kSparse);
}

void check_has_cpu_kernel(const OpInfo& info) {
  TORCH_CHECK_NOT_IMPLEMENTED(info.op.hasComputedKernelForDispatchKey(c10::DispatchKey::CPU), info.name,
                              ": neuron runs PyTorch's kernels for the CPU, and this operator has none "
                              "there. Register a kernel for the CPU "
                              "(torch.library), or use another operator.");
}

}  // namespace neuron::bridge
