// Scalars: what the host asks of device memory. Waits for the current stream, and for nothing else.
#include <ATen/core/Tensor.h>
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

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) { m.impl("_local_scalar_dense", &local_scalar_dense); }

}  // namespace

}  // namespace neuron::bridge
