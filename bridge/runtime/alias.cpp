#include "bridge/runtime/alias.h"

#include <ATen/EmptyTensor.h>
#include <ATen/ops/conj_physical.h>
#include <c10/core/InferenceMode.h>

namespace neuron::bridge {

at::Tensor make_alias(void* data, std::size_t nbytes, at::IntArrayRef sizes, at::IntArrayRef strides,
                      at::ScalarType dtype) {
  // An alias outlives the caller's mode: made as an inference tensor it could not be written to outside of
  // it.
  const c10::InferenceMode no_inference(false);
  c10::Storage storage(c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), nbytes,
                                                             c10::DataPtr(data, at::kCPU), nullptr, false));
  at::Tensor alias = at::detail::make_tensor<c10::TensorImpl>(
      std::move(storage), c10::DispatchKeySet(c10::DispatchKey::CPU), c10::scalarTypeToTypeMeta(dtype));
  alias.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides);
  return alias;
}

at::Tensor make_alias(const at::Tensor& tensor) {
  void* data = tensor.numel() == 0 ? nullptr : const_cast<void*>(tensor.const_data_ptr());
  at::Tensor alias = make_alias(data, extent_bytes(tensor.sizes(), tensor.strides(), tensor.itemsize()),
                                tensor.sizes(), tensor.strides(), tensor.scalar_type());
  if (tensor.is_conj()) alias._set_conj(true);
  if (tensor.is_neg()) alias._set_neg(true);
  if (tensor.unsafeGetTensorImpl()->is_wrapped_number())
    alias.unsafeGetTensorImpl()->set_wrapped_number(true);
  return alias;
}

void retarget(const at::Tensor& alias, void* data) {
  alias.storage().unsafeGetStorageImpl()->set_data_ptr_noswap(c10::DataPtr(data, at::kCPU));
}

void restore_lazy_bits(const at::Tensor& alias, bool conj, bool neg) {
  if (alias.is_conj() != conj) {
    alias._set_conj(conj);
    at::conj_physical_(const_cast<at::Tensor&>(alias));
  }
  if (alias.is_neg() != neg) {
    alias._set_neg(neg);
    alias.neg_();
  }
}

std::size_t extent_bytes(at::IntArrayRef sizes, at::IntArrayRef strides, std::size_t itemsize) {
  std::size_t last = 0;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] == 0) return 0;
    last += static_cast<std::size_t>((sizes[i] - 1) * strides[i]);
  }
  return (last + 1) * itemsize;
}

}  // namespace neuron::bridge
