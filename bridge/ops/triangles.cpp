// tril and triu with out=: the CPU's kernel takes it for granted that the matrices of the result follow each other,
// and writes past its end when they do not. The in-place form does not.
#include <ATen/native/Resize.h>
#include <ATen/ops/tril.h>
#include <ATen/ops/triu.h>
#include <torch/library.h>

namespace neuron::bridge {

namespace {

void take_operand(const at::Tensor& self, const at::Tensor& out) {
  TORCH_CHECK(self.device() == out.device(),
              "Expected all tensors to be on the same device, but found at least two devices, ",
              self.device(), " and ", out.device(), "!");
  TORCH_CHECK(self.scalar_type() == out.scalar_type(), "Expected out tensor to have dtype ", self.dtype(),
              ", but got ", out.dtype(), " instead");
  at::native::resize_output(out, self.sizes());
  if (!out.is_same(self)) out.copy_(self);
}

at::Tensor& tril_out(const at::Tensor& self, std::int64_t diagonal, at::Tensor& out) {
  take_operand(self, out);
  return out.tril_(diagonal);
}

at::Tensor& triu_out(const at::Tensor& self, std::int64_t diagonal, at::Tensor& out) {
  take_operand(self, out);
  return out.triu_(diagonal);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("tril.out", &tril_out);
  m.impl("triu.out", &triu_out);
}

}  // namespace

}  // namespace neuron::bridge
