#include "bridge/dispatch/rehearsal.h"

#include <algorithm>

#include "bridge/dispatch/sample_call.h"
#include "bridge/dispatch/unsupported.h"
#include "bridge/runtime/alias.h"

namespace neuron::bridge {

namespace {

// A structured operator's meta function is its kernel's own; an operator that writes its arguments has nothing
// to be wrong about unless it resizes them. Of pointwise operators torch has meta functions in Python, too, which
// widen low precision first and lose the order of the dimensions with it.
bool needs_rehearsal(const Plan& plan, const CallKey& key) {
  if (!plan.asynchronous || plan.is_rehearsed) return false;
  const OpInfo& info = plan.info;
  if (info.style == OutputStyle::kWritesArguments) return !plan.resizes.empty();
  if (!info.structured) return true;
  return info.pointwise && std::any_of(key.tensors.begin(), key.tensors.end(), [](const auto& argument) {
           const at::Tensor& tensor = *argument.tensor;
           return at::isReducedFloatingType(tensor.scalar_type()) && !tensor.is_contiguous();
         });
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

void rehearse(Plan& plan, const CallKey& key, Arguments arguments) {
  if (!needs_rehearsal(plan, key)) return;
  const SampleCall sample(plan.info, arguments);
  if (sample.outcome() != SampleCall::Outcome::kDone) {
    plan.asynchronous = false;
    plan.reason = kRefusesSample;
    return;
  }
  const bool right = plan.info.style == OutputStyle::kWritesArguments ? take_resizes(plan, sample.arguments())
                                                                      : agrees(plan, sample.results());
  if (right) return;
  plan.asynchronous = false;
  plan.reason = "its meta function misstates the result";
}

}  // namespace neuron::bridge
