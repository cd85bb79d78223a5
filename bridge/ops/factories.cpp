// Factories: tensors without contents, on the current stream of their device.
#include <ATen/EmptyTensor.h>
#include <ATen/native/TensorFactories.h>
#include <c10/core/DeviceGuard.h>
#include <torch/library.h>

#include "bridge/runtime/allocator.h"
#include "bridge/runtime/devices.h"

namespace neuron::bridge {

namespace {

constexpr c10::DispatchKeySet kKeys(c10::DispatchKey::PrivateUse1);

c10::Device target(std::optional<at::Device> device) {
  return neuron_device(resolve(device.has_value() ? device->index() : c10::DeviceIndex{-1}));
}

void check_options(std::optional<at::Layout> layout, std::optional<bool> pin_memory) {
  TORCH_CHECK(!layout.has_value() || *layout == at::kStrided,
              "neuron: only strided tensors are supported, got ", layout.value_or(at::kStrided),
              "; make it on the CPU");
  TORCH_CHECK(!pin_memory.value_or(false), "Only dense CPU tensors can be pinned");
}

at::Tensor deterministic(at::Tensor tensor) {
  if (at::globalContext().deterministicAlgorithms() &&
      at::globalContext().deterministicFillUninitializedMemory()) [[unlikely]] {
    at::native::fill_empty_deterministic_(tensor);
  }
  return tensor;
}

at::Tensor empty(c10::SymIntArrayRef sizes, std::optional<at::ScalarType> dtype,
                 std::optional<at::Layout> layout, std::optional<at::Device> device,
                 std::optional<bool> pin_memory, std::optional<at::MemoryFormat> memory_format) {
  check_options(layout, pin_memory);
  const c10::DeviceGuard guard(target(device));
  return deterministic(at::detail::empty_generic(C10_AS_INTARRAYREF_SLOW(sizes), &device_allocator(), kKeys,
                                                 c10::dtype_or_default(dtype), memory_format));
}

at::Tensor empty_strided(c10::SymIntArrayRef sizes, c10::SymIntArrayRef strides,
                         std::optional<at::ScalarType> dtype, std::optional<at::Layout> layout,
                         std::optional<at::Device> device, std::optional<bool> pin_memory) {
  check_options(layout, pin_memory);
  const c10::DeviceGuard guard(target(device));
  return deterministic(
      at::detail::empty_strided_generic(C10_AS_INTARRAYREF_SLOW(sizes), C10_AS_INTARRAYREF_SLOW(strides),
                                        &device_allocator(), kKeys, c10::dtype_or_default(dtype)));
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", &empty);
  m.impl("empty_strided", &empty_strided);
}

}  // namespace

}  // namespace neuron::bridge
