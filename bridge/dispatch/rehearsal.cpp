#include "bridge/dispatch/rehearsal.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/zeros.h>

#include "bridge/dispatch/kernel_scope.h"
#include "bridge/dispatch/tensors_in.h"
#include "bridge/dispatch/unsupported.h"
#include "bridge/runtime/alias.h"

namespace neuron::bridge {

namespace {

// Numbers in [0, 1) for floating point, so that matrices are regular; zeros, which are valid indices, for the
// rest.
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

bool agrees(OutputSpec& spec, const at::Tensor& result) {
  if (!spec.defined || !result.defined()) return spec.defined == result.defined();
  if (!is_plain(result) || result.sizes() != at::IntArrayRef(spec.sizes) ||
      result.scalar_type() != spec.dtype)
    return false;
  spec.strides.assign(result.strides().begin(), result.strides().end());
  spec.nbytes = extent_bytes(result.sizes(), result.strides(), result.itemsize());
  return true;
}

bool agrees(Plan& plan, const torch::jit::Stack& results) {
  if (plan.returns_list) {
    const auto list = results.back().toTensorList();
    if (list.size() != plan.outputs.size()) return false;
    for (std::size_t i = 0; i < list.size(); ++i) {
      if (!agrees(plan.outputs[i], list.get(i))) return false;
    }
    return true;
  }
  for (std::size_t i = 0; i < plan.outputs.size(); ++i) {
    if (!agrees(plan.outputs[i], results[i].toTensor())) return false;
  }
  return true;
}

// What the kernel made of the out= arguments that the call resizes.
bool take_resizes(Plan& plan, const std::vector<c10::IValue>& arguments) {
  for (Resize& resize : plan.resizes) {
    const at::Tensor& out = arguments[resize.argument].toTensor();
    if (out.sizes() != at::IntArrayRef(resize.sizes)) return false;
    resize.strides.assign(out.strides().begin(), out.strides().end());
  }
  return true;
}

}  // namespace

void rehearse(Plan& plan, const torch::jit::Stack& stack) {
  const OpInfo& info = plan.info;
  // The user's generators must not notice.
  const at::Generator generator = at::detail::createCPUGenerator(0);
  const KernelScope scope(0);
  torch::jit::Stack values;
  std::vector<c10::IValue> arguments;
  const std::size_t first = stack.size() - info.arguments.size();
  try {
    for (std::size_t i = 0; i < info.arguments.size(); ++i)
      values.push_back(made_up(stack[first + i], generator));
    arguments.assign(values.begin(), values.end());
    info.op.callBoxed(values);
  } catch (const std::exception&) {
    // Wrong arguments, or made-up values that the kernel cannot take: the real call will tell.
    plan.asynchronous = false;
    plan.reason = "its kernel does not take made-up values";
    return;
  }
  const bool right =
      info.style == OutputStyle::kWritesArguments ? take_resizes(plan, arguments) : agrees(plan, values);
  if (right) return;
  plan.asynchronous = false;
  plan.reason = "its meta function misstates the result";
}

}  // namespace neuron::bridge
