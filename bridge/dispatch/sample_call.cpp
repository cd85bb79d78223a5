#include "bridge/dispatch/sample_call.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/zeros.h>

#include "bridge/dispatch/kernel_scope.h"
#include "bridge/dispatch/tensors_in.h"
#include "bridge/runtime/alias.h"
#include "bridge/runtime/cpu_allocator.h"

namespace neuron::bridge {

namespace {

at::Tensor made_up(const at::Tensor& tensor, const at::Generator& generator) {
  if (!on_device(tensor)) return tensor;
  // Filled before it gets its strides: an expanded tensor cannot be written to.
  const auto elements = extent_bytes(tensor.sizes(), tensor.strides(), tensor.itemsize()) / tensor.itemsize();
  const at::Tensor memory =
      at::zeros({static_cast<std::int64_t>(elements)}, tensor.options().device(at::kCPU));
  if (tensor.is_floating_point() && tensor.itemsize() > 1) memory.uniform_(0.0, 1.0, generator);
  const at::Tensor host = memory.as_strided(tensor.sizes(), tensor.strides());
  if (tensor.is_conj()) host._set_conj(true);
  if (tensor.is_neg()) host._set_neg(true);
  return host;
}

c10::IValue made_up(const c10::IValue& value, const at::Generator& generator) {
  auto mapped = map_tensors(value, [&](const at::Tensor& tensor) { return made_up(tensor, generator); });
  if (mapped) return *std::move(mapped);
  if (names_device(value)) return c10::Device(at::kCPU);
  if (value.isGenerator()) return generator;
  return value;
}

}  // namespace

SampleCall::SampleCall(const OpInfo& info, Arguments arguments, std::size_t budget) {
  const at::Generator generator = at::detail::createCPUGenerator(0);
  const KernelScope scope(0);
  const AllocationBudget bound(budget);
  try {
    for (const c10::IValue& value : arguments) results_.push_back(made_up(value, generator));
    arguments_.assign(results_.begin(), results_.end());
    info.op.callBoxed(results_);
  } catch (const std::exception&) {
    outcome_ = bound.is_exceeded() ? Outcome::kTooLarge : Outcome::kRefused;
  }
}

}  // namespace neuron::bridge
