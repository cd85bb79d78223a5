// Scalars: what the host asks of device memory. Waits for the current stream, and for nothing else.
#include <ATen/core/Tensor.h>
#include <ATen/native/transformers/attention.h>
#include <ATen/ops/_fused_sdp_choice_ops.h>
#include <ATen/ops/_local_scalar_dense_native.h>
#include <torch/library.h>

#include "bridge/dispatch/kernel_scope.h"
#include "bridge/runtime/alias.h"
#include "bridge/runtime/streams.h"

namespace neuron::bridge {

namespace {

at::Scalar local_scalar_dense(const at::Tensor& self) {
  synchronize(current_stream(self.device().index()));
  return at::native::_local_scalar_dense_cpu(make_alias(self));
}

// Looks at sizes, strides and dtypes only, so it needs no wait; aliases reach the CPU's own choice.
std::int64_t fused_sdp_choice(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                              const std::optional<at::Tensor>& mask, double dropout, bool causal,
                              std::optional<double> scale, bool grouped) {
  at::Tensor q = make_alias(query), k = make_alias(key), v = make_alias(value);
  // The choice depends on whether a gradient will be asked for.
  q.set_requires_grad(query.requires_grad());
  k.set_requires_grad(key.requires_grad());
  v.set_requires_grad(value.requires_grad());
  std::optional<at::Tensor> m;
  if (mask.has_value() && mask->defined()) m = make_alias(*mask).set_requires_grad(mask->requires_grad());
  const c10::impl::ExcludeDispatchKeyGuard guard(c10::autograd_dispatch_keyset_with_ADInplaceOrView);
  return at::_ops::_fused_sdp_choice::call(q, k, v, m, dropout, causal, scale, grouped);
}

// scaled_dot_product_attention asks the stub, not the operator.
const bool registered = [] {
  at::native::_fused_sdp_choice_stub.set_privateuse1_dispatch_ptr(&fused_sdp_choice);
  return true;
}();

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_local_scalar_dense", &local_scalar_dense);
  m.impl("_fused_sdp_choice", &fused_sdp_choice);
}

}  // namespace

}  // namespace neuron::bridge
