#include "bridge/runtime/composed.h"

#include <ATen/NestedTensorImpl.h>
#include <ATen/SparseCsrTensorImpl.h>
#include <ATen/SparseCsrTensorUtils.h>
#include <ATen/SparseTensorImpl.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/native/SparseTensorUtils.h>
#include <ATen/ops/_sparse_compressed_tensor_unsafe.h>
#include <ATen/ops/_sparse_coo_tensor_unsafe.h>

#include <tuple>

namespace neuron::bridge {

namespace {

// Below autograd, as the kernels that come here, but for those of operators that autograd does not know.
using BelowAutograd = at::AutoDispatchBelowADInplaceOrView;

at::Tensor rebuild_coo(const at::Tensor& tensor, PartMap map) {
  const at::Tensor values = map(tensor._values());
  return at::_sparse_coo_tensor_unsafe(map(tensor._indices()), values, tensor.sizes(),
                                       values.options().layout(at::kSparse), tensor.is_coalesced());
}

at::Tensor rebuild_compressed(const at::Tensor& tensor, PartMap map) {
  const auto [compressed, plain] = at::sparse_csr::getCompressedPlainIndices(tensor);
  const at::Tensor values = map(tensor.values());
  return at::_sparse_compressed_tensor_unsafe(map(compressed), map(plain), values, tensor.sizes(),
                                              values.options().layout(tensor.layout()));
}

at::Tensor rebuild_nested(const at::Tensor& tensor, PartMap map) {
  const auto* nested = at::native::get_nested_tensor_impl(tensor);
  return at::detail::make_tensor<at::native::NestedTensorImpl>(
      map(nested->get_unsafe_storage_as_tensor()), nested->get_nested_sizes(), nested->get_nested_strides(),
      nested->get_storage_offsets());
}

}  // namespace

bool is_composed(const at::Tensor& tensor) {
  return tensor.defined() && (tensor.is_sparse() || at::sparse_csr::is_sparse_compressed(tensor) ||
                              (tensor.is_nested() && !tensor.unsafeGetTensorImpl()->is_python_dispatch()));
}

at::Tensor rebuild(const at::Tensor& tensor, PartMap map) {
  const BelowAutograd guard;
  if (tensor.is_nested()) return rebuild_nested(tensor, map);
  return tensor.is_sparse() ? rebuild_coo(tensor, map) : rebuild_compressed(tensor, map);
}

void adopt(const at::Tensor& target, const at::Tensor& source, PartMap map) {
  const BelowAutograd guard;
  if (target.is_nested()) return;  // written to in its buffer only
  if (target.is_sparse()) {
    auto* impl = at::sparse::get_sparse_impl(target);
    impl->raw_resize_(source.sparse_dim(), source.dense_dim(), source.sizes());
    impl->set_indices_and_values_unsafe(map(source._indices()), map(source._values()));
    impl->set_coalesced(source.is_coalesced());
    return;
  }
  const auto [compressed, plain] = at::sparse_csr::getCompressedPlainIndices(source);
  at::sparse_csr::get_sparse_csr_impl(target)->set_member_tensors(map(compressed), map(plain),
                                                                  map(source.values()), source.sizes());
}

}  // namespace neuron::bridge
