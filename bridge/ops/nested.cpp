// Nested tensors of the strided layout, which the attention of jagged ones makes, too. What describes them (sizes,
// strides, offsets) is on the host, as on every device.
#include <ATen/NestedTensorImpl.h>
#include <ATen/ops/_nested_view_from_buffer_native.h>

#include "bridge/ops/composed_layouts.h"

namespace neuron::bridge {

namespace {

using c10::DispatchKey;

void run_nested(const c10::OperatorHandle& op, c10::DispatchKeySet /*keys*/, torch::jit::Stack* stack) {
  run_composed(op, DispatchKey::NestedTensorCPU, "nested", *stack);
}

torch::CppFunction nested_kernel() { return torch::CppFunction::makeFromBoxedFunction<&run_nested>(); }

at::Tensor sizes_of(const at::Tensor& self) {
  return at::native::get_nested_tensor_impl(self)->get_nested_sizes();
}
at::Tensor strides_of(const at::Tensor& self) {
  return at::native::get_nested_tensor_impl(self)->get_nested_strides();
}
at::Tensor offsets_of(const at::Tensor& self) {
  return at::native::get_nested_tensor_impl(self)->get_storage_offsets();
}

TORCH_LIBRARY_IMPL(aten, NestedTensorPrivateUse1, m) {
  m.impl("_nested_tensor_size", TORCH_FN(sizes_of));
  m.impl("_nested_tensor_strides", TORCH_FN(strides_of));
  m.impl("_nested_tensor_storage_offsets", TORCH_FN(offsets_of));
  register_composed(m, DispatchKey::NestedTensorPrivateUse1, DispatchKey::NestedTensorCPU, &nested_kernel);
}
TORCH_LIBRARY_IMPL(_, NestedTensorPrivateUse1, m) { m.fallback(nested_kernel()); }

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_nested_view_from_buffer", TORCH_FN(at::native::_nested_view_from_buffer));
}

}  // namespace

}  // namespace neuron::bridge
