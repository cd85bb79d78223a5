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

at::Generator reserve_generator(const OpInfo& info, Arguments arguments, c10::DeviceIndex device) {
  std::optional<at::Generator> given;
  for (std::size_t i = 0; i < info.arguments.size(); ++i) {
    if (info.arguments[i].kind == ArgumentKind::kGenerator && arguments[i].isGenerator())
      given = arguments[i].toGenerator();
  }
  return cpu_generator(reserve_random(given, device, 4));
}

void submit(const PlanPtr& plan, const CallKey& key, Arguments arguments, Outputs& outputs) {
  Stream& stream = current_stream(key.device);
  std::unique_ptr<PlanCommand> command = plan->take_command(key, arguments);
  for (std::size_t i = 0; i < plan->outputs.size(); ++i) {
    const OutputSpec& spec = plan->outputs[i];
    if (!spec.defined) {
      outputs.tensors.emplace_back();
      continue;
    }
    c10::DataPtr data = allocate_on(stream, spec.nbytes);
    command->set_output(i, data.get());
    outputs.tensors.push_back(make_output(spec, std::move(data)));
  }
  outputs.is_list = plan->returns_list;
  if (plan->info.random) command->set_generator(reserve_generator(plan->info, arguments, key.device));
  command->set_threads(intra_op_threads());
  const StreamPosition position = bridge::submit(stream, std::move(command));
  for (const TensorArgument& argument : key.tensors) {
    if (!argument.host_scalar) record_use(*argument.tensor, stream, position);
  }
  count_executed(plan->info.name);
  review_inline_policy();
  if (env().launch_blocking) synchronize(stream);
}

// The kernel finds its operand resized then, and has its own answer to that.
bool resizes_an_operand(const Plan& plan, const CallKey& key, Arguments arguments) {
  return std::any_of(plan.resizes.begin(), plan.resizes.end(), [&](const Resize& resize) {
    const at::Tensor& out = arguments[resize.argument].toTensor();
    return std::count_if(key.tensors.begin(), key.tensors.end(),
                         [&](const TensorArgument& argument) { return argument.tensor->is_same(out); }) > 1;
  });
}

// True when an out= argument was given the size that the call makes of it, so that the call has another key
// now.
bool resized_outputs(const Plan& plan, Arguments arguments) {
  for (const Resize& resize : plan.resizes) {
    resize_out(arguments[resize.argument].toTensor(), resize.sizes, resize.strides);
  }
  return !plan.resizes.empty();
}

void replace_arguments(const OpInfo& info, Outputs outputs, torch::jit::Stack& stack) {
  if (info.style == OutputStyle::kWritesArguments) {
    c10::SmallVector<c10::IValue, 4> returned;
    const std::size_t first = stack.size() - info.arguments.size();
    for (const std::size_t index : info.returned_arguments) returned.push_back(stack[first + index]);
    torch::jit::drop(stack, info.arguments.size());
    for (auto& value : returned) stack.push_back(std::move(value));
    return;
  }
  torch::jit::drop(stack, info.arguments.size());
  if (outputs.is_list) {
    c10::List<at::Tensor> list;
    list.reserve(outputs.tensors.size());
    for (at::Tensor& tensor : outputs.tensors) list.push_back(std::move(tensor));
    stack.emplace_back(std::move(list));
    return;
  }
  for (at::Tensor& tensor : outputs.tensors) stack.emplace_back(std::move(tensor));
}

}  // namespace

at::Generator cpu_generator(const PhiloxState& state) { return at::detail::createCPUGenerator(mix(state)); }

const char* try_submit(const OpInfo& info, PlanCache& cache, Arguments arguments, Outputs& outputs) {
  CallKey key;
  key.build(info, arguments);
  if (key.obstacle != nullptr) return key.obstacle;
  PlanPtr plan = cache.find(key);
  if (!plan) {
    plan = make_plan(info, key, arguments);
    rehearse(*plan, key, arguments);
    cache.insert(key, plan);
  }
  if (!plan->asynchronous) return plan->reason;
  if (resizes_an_operand(*plan, key, arguments))
    return "an out= argument that changes its size is an operand, too";
  if (info.style == OutputStyle::kWritesArguments && written_overlaps(info, key))
    return "an argument to be written to overlaps with another";
  if (resized_outputs(*plan, arguments)) return try_submit(info, cache, arguments, outputs);
  submit(plan, key, arguments, outputs);
  return nullptr;
}

void execute(const OpInfo& info, PlanCache& cache, torch::jit::Stack& stack) {
  Outputs outputs;
  const std::size_t count = info.arguments.size();
  const Arguments arguments(stack.data() + (stack.size() - count), count);
  if (const char* reason = try_submit(info, cache, arguments, outputs))
    return execute_drained(info, reason, stack);
  replace_arguments(info, std::move(outputs), stack);
}

}  // namespace neuron::bridge
