#include "bridge/dispatch/execute.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/EmptyTensor.h>

#include <algorithm>

#include "bridge/dispatch/call_key.h"
#include "bridge/dispatch/kernel_scope.h"
#include "bridge/dispatch/op_counters.h"
#include "bridge/dispatch/overlap.h"
#include "bridge/dispatch/plan_command.h"
#include "bridge/dispatch/rehearsal.h"
#include "bridge/runtime/allocator.h"
#include "bridge/runtime/devices.h"
#include "bridge/runtime/generator.h"
#include "bridge/runtime/inline_policy.h"
#include "bridge/runtime/storage.h"
#include "bridge/runtime/streams.h"
#include "engine/base/env.h"

namespace neuron::bridge {

namespace {

at::Tensor make_output(const OutputSpec& spec, c10::DataPtr data) {
  c10::Storage storage(c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), spec.nbytes,
                                                             std::move(data), &device_allocator(), true));
  at::Tensor tensor = at::detail::make_tensor<c10::TensorImpl>(
      std::move(storage), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
      c10::scalarTypeToTypeMeta(spec.dtype));
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(spec.sizes, spec.strides);
  return tensor;
}

// mt19937 takes 32 bits of seed: mix, so that neighbouring offsets do not look alike.
std::uint64_t mix(PhiloxState state) {
  std::uint64_t x = state.seed * 0x9E3779B97F4A7C15ULL + state.offset;
  x ^= x >> 30;
  x *= 0xBF58476D1CE4E5B9ULL;
  x ^= x >> 27;
  x *= 0x94D049BB133111EBULL;
  return x ^ (x >> 31);
}

at::Generator reserve_generator(const OpInfo& info, const torch::jit::Stack& stack, c10::DeviceIndex device) {
  std::optional<at::Generator> given;
  const std::size_t first = stack.size() - info.arguments.size();
  for (std::size_t i = 0; i < info.arguments.size(); ++i) {
    const c10::IValue& value = stack[first + i];
    if (info.arguments[i].kind == ArgumentKind::kGenerator && value.isGenerator())
      given = value.toGenerator();
  }
  return cpu_generator(reserve_random(given, device, 4));
}

void replace_arguments(const Plan& plan, std::vector<at::Tensor> outputs, torch::jit::Stack& stack) {
  const OpInfo& info = plan.info;
  if (info.style == OutputStyle::kWritesArguments) {
    c10::SmallVector<c10::IValue, 4> returned;
    const std::size_t first = stack.size() - info.arguments.size();
    for (const std::size_t index : info.returned_arguments) returned.push_back(stack[first + index]);
    torch::jit::drop(stack, info.arguments.size());
    for (auto& value : returned) stack.push_back(std::move(value));
    return;
  }
  torch::jit::drop(stack, info.arguments.size());
  if (plan.returns_list) {
    stack.emplace_back(c10::List<at::Tensor>(outputs));
    return;
  }
  for (auto& output : outputs) stack.emplace_back(std::move(output));
}

void submit(const PlanPtr& plan, const CallKey& key, torch::jit::Stack& stack) {
  Stream& stream = current_stream(key.device);
  std::unique_ptr<PlanCommand> command = plan->take_command(key, stack);
  std::vector<at::Tensor> outputs;
  outputs.reserve(plan->outputs.size());
  for (std::size_t i = 0; i < plan->outputs.size(); ++i) {
    const OutputSpec& spec = plan->outputs[i];
    if (!spec.defined) {
      outputs.emplace_back();
      continue;
    }
    c10::DataPtr data = allocate_on(stream, spec.nbytes);
    command->set_output(i, data.get());
    outputs.push_back(make_output(spec, std::move(data)));
  }
  if (plan->info.random) command->set_generator(reserve_generator(plan->info, stack, key.device));
  command->set_threads(intra_op_threads());
  const StreamPosition position = stream.submit(std::move(command));
  for (const TensorArgument& argument : key.tensors) {
    if (!argument.host_scalar) record_use(*argument.tensor, stream, position);
  }
  count_executed(plan->info.name);
  review_inline_policy();
  replace_arguments(*plan, std::move(outputs), stack);
  if (env().launch_blocking) synchronize(stream);
}

// The kernel finds its operand resized then, and has its own answer to that.
bool resizes_an_operand(const Plan& plan, const CallKey& key, const torch::jit::Stack& stack) {
  const std::size_t first = stack.size() - plan.info.arguments.size();
  return std::any_of(plan.resizes.begin(), plan.resizes.end(), [&](const Resize& resize) {
    const at::Tensor& out = stack[first + resize.argument].toTensor();
    return std::count_if(key.tensors.begin(), key.tensors.end(),
                         [&](const TensorArgument& argument) { return argument.tensor->is_same(out); }) > 1;
  });
}

// True when an out= argument was given the size that the call makes of it, so that the call has another key
// now.
bool resized_outputs(const Plan& plan, const torch::jit::Stack& stack) {
  const std::size_t first = stack.size() - plan.info.arguments.size();
  for (const Resize& resize : plan.resizes) {
    const at::Tensor& out = stack[first + resize.argument].toTensor();
    resize_out(out, resize.sizes, resize.strides);
  }
  return !plan.resizes.empty();
}

}  // namespace

at::Generator cpu_generator(const PhiloxState& state) { return at::detail::createCPUGenerator(mix(state)); }

void execute(const OpInfo& info, PlanCache& cache, torch::jit::Stack& stack) {
  CallKey key;
  key.build(info, stack);
  if (key.obstacle != nullptr) return execute_drained(info, key.obstacle, stack);
  PlanPtr plan = cache.find(key);
  if (!plan) {
    plan = make_plan(info, key, stack);
    rehearse(*plan, key, stack);
    cache.insert(key, plan);
  }
  if (!plan->asynchronous) return execute_drained(info, plan->reason, stack);
  if (resizes_an_operand(*plan, key, stack)) {
    return execute_drained(info, "an out= argument that changes its size is an operand, too", stack);
  }
  if (info.style == OutputStyle::kWritesArguments && written_overlaps(info, key)) {
    return execute_drained(info, "an argument to be written to overlaps with another", stack);
  }
  if (resized_outputs(*plan, stack)) return execute(info, cache, stack);
  submit(plan, key, stack);
}

}  // namespace neuron::bridge
