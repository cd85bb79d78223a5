#include "bridge/dispatch/plan.h"

#include <ATen/MemoryOverlap.h>

#include "bridge/dispatch/lesson.h"
#include "bridge/dispatch/plan_command.h"
#include "bridge/dispatch/tensors_in.h"
#include "bridge/dispatch/unsupported.h"
#include "bridge/runtime/alias.h"

namespace neuron::bridge {

namespace {

OutputSpec spec_of(const at::Tensor& tensor) {
  OutputSpec spec;
  spec.defined = tensor.defined();
  if (!spec.defined) return spec;
  spec.sizes.assign(tensor.sizes().begin(), tensor.sizes().end());
  spec.strides.assign(tensor.strides().begin(), tensor.strides().end());
  spec.dtype = tensor.scalar_type();
  spec.nbytes = extent_bytes(tensor.sizes(), tensor.strides(), tensor.itemsize());
  return spec;
}

// An alias over fixed memory cannot grow: out= arguments of another size are noted, anything else that
// changes its size is an obstacle (false).
bool note_resizes(Plan& plan, Arguments before, const std::vector<c10::IValue>& after) {
  const OpInfo& info = plan.info;
  for (std::size_t i = 0; i < info.arguments.size(); ++i) {
    if (!info.arguments[i].written || !after[i].isTensor()) continue;
    const at::Tensor& result = after[i].toTensor();
    if (before[i].toTensor().sizes() == result.sizes()) continue;
    if (!info.arguments[i].is_out) return false;
    Resize resize{i, {result.sizes().begin(), result.sizes().end()}, {}};
    if (plan.is_rehearsed) resize.strides.assign(result.strides().begin(), result.strides().end());
    plan.resizes.push_back(std::move(resize));
  }
  return true;
}

}  // namespace

Plan::Plan(const OpInfo& operator_info) : info(operator_info) {}
Plan::~Plan() = default;

std::unique_ptr<PlanCommand> Plan::take_command(const CallKey& key, Arguments arguments) {
  std::unique_ptr<PlanCommand> command = commands.take();
  if (!command) command = std::make_unique<PlanCommand>(shared_from_this(), key, arguments);
  command->load(key, arguments);
  return command;
}

PlanPtr make_plan(const OpInfo& info, const CallKey& key, Arguments arguments) {
  auto plan = std::make_shared<Plan>(info);
  plan->reason = info.obstacle;
  if (plan->reason != nullptr) return plan;
  for (const TensorArgument& argument : key.tensors) {
    if (argument.written && at::has_internal_overlap(*argument.tensor) != at::MemOverlap::No) {
      plan->reason = "an argument to be written to overlaps with itself";
      return plan;
    }
  }
  const Lesson lesson = learn(info, key, arguments);
  plan->reason = lesson.refusal;
  if (plan->reason != nullptr) return plan;
  plan->is_rehearsed = lesson.from_kernel;
  const torch::jit::Stack& results = lesson.results;
  if (info.style == OutputStyle::kWritesArguments) {
    plan->asynchronous = note_resizes(*plan, arguments, lesson.arguments);
    if (!plan->asynchronous) plan->reason = "an argument to be written to changes its size";
    return plan;
  }
  bool plain = true;
  for (const c10::IValue& value : results) {
    for_each_tensor(value, [&plain](const at::Tensor& tensor) { plain = plain && is_plain(tensor); });
  }
  if (!plain) {
    plan->reason = "its result is not plain and strided";
    return plan;
  }
  plan->returns_list = results.size() == 1 && results[0].isTensorList();
  if (plan->returns_list) {
    for (const c10::IValue& element : results[0].toListRef())
      plan->outputs.push_back(spec_of(element.toTensor()));
    if (info.style == OutputStyle::kOutOverload) {
      plan->reason = "its out= form takes a list";
      return plan;
    }
  } else {
    for (const c10::IValue& value : results) plan->outputs.push_back(spec_of(value.toTensor()));
  }
  plan->asynchronous = true;
  return plan;
}

}  // namespace neuron::bridge
