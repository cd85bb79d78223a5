#include "bridge/dispatch/plan_command.h"

#include <c10/core/ScalarTypeToTypeMeta.h>

#include <cstring>

#include "bridge/dispatch/kernel_scope.h"
#include "bridge/dispatch/op_counters.h"
#include "bridge/runtime/alias.h"
#include "bridge/runtime/cpu_allocator.h"

namespace neuron::bridge {

namespace {

bool holds_tensors(ArgumentKind kind) {
  return kind == ArgumentKind::kTensor || kind == ArgumentKind::kTensorList;
}

// A factory's kernel is to make its result where the kernels run.
const c10::IValue& on_host(const c10::IValue& value) {
  static const c10::IValue kHost{c10::Device(at::kCPU)};
  return value.isDevice() && value.toDevice().type() == c10::DeviceType::PrivateUse1 ? kHost : value;
}

// The argument with aliases in the place of its tensors; `next` walks the key's order.
c10::IValue with_aliases(const c10::IValue& value, const std::vector<at::Tensor>& aliases,
                         std::size_t& next) {
  if (value.isTensor()) return value.toTensor().defined() ? c10::IValue(aliases[next++]) : value;
  if (value.isTensorList()) {
    c10::List<at::Tensor> list;
    for (const c10::IValue& element : value.toListRef()) {
      list.push_back(element.toTensor().defined() ? aliases[next++] : at::Tensor());
    }
    return list;
  }
  c10::List<std::optional<at::Tensor>> list;
  for (const c10::IValue& element : value.toListRef()) {
    const bool defined = !element.isNone() && element.toTensor().defined();
    list.push_back(defined ? std::optional<at::Tensor>(aliases[next++]) : std::nullopt);
  }
  return list;
}

}  // namespace

PlanCommand::PlanCommand(PlanPtr plan, const CallKey& key, Arguments arguments)
    : Command(CommandKind::kCompute, RunMode::kMayInline, plan->info.name),
      plan_(std::move(plan)),
      has_place_(plan_->commands.claim_place()) {
  const OpInfo& info = plan_->info;
  std::size_t scalars = 0;
  for (const TensorArgument& argument : key.tensors) scalars += argument.host_scalar ? 1 : 0;
  host_scalars_.resize(scalars);
  for (const TensorArgument& argument : key.tensors) aliases_.push_back(make_alias(*argument.tensor));
  for (std::size_t i = 0; i < aliases_.size(); ++i) {
    if (!key.tensors[i].written || !aliases_[i].is_complex()) continue;
    lazy_bits_.push_back({i, aliases_[i].is_conj(), aliases_[i].is_neg()});
  }
  std::size_t next = 0;
  for (std::size_t i = 0; i < info.arguments.size(); ++i) {
    const c10::IValue& value = arguments[i];
    const bool has_tensors = holds_tensors(info.arguments[i].kind) && !value.isNone();
    arguments_.push_back(has_tensors ? with_aliases(value, aliases_, next) : on_host(value));
    if (varies_within_key(info.arguments[i].kind, value)) varying_arguments_.push_back(i);
  }
  for (const OutputSpec& spec : plan_->outputs) {
    outputs_.push_back(spec.defined ? make_alias(nullptr, spec.nbytes, spec.sizes, spec.strides, spec.dtype)
                                    : at::Tensor());
  }
  if (info.style == OutputStyle::kOutOverload) {
    for (const at::Tensor& output : outputs_) arguments_.emplace_back(output);
  }
  varying_values_.resize(varying_arguments_.size());
  data_.resize(aliases_.size() + outputs_.size());
}

PlanCommand::~PlanCommand() {
  if (has_place_) plan_->commands.release_place();
}

void PlanCommand::load(const CallKey& key, Arguments arguments) {
  for (std::size_t i = 0; i < varying_arguments_.size(); ++i)
    varying_values_[i] = arguments[varying_arguments_[i]];
  std::size_t scalar = 0;
  std::uint64_t bytes = 0;
  for (std::size_t i = 0; i < key.tensors.size(); ++i) {
    const at::Tensor& tensor = *key.tensors[i].tensor;
    if (key.tensors[i].host_scalar) {
      auto& copy = host_scalars_[scalar++];
      std::memcpy(copy.data(), tensor.const_data_ptr(), tensor.itemsize());
      data_[i] = copy.data();
    } else {
      data_[i] = tensor.numel() == 0 ? nullptr : const_cast<void*>(tensor.const_data_ptr());
      bytes += tensor.nbytes();
    }
  }
  for (const OutputSpec& spec : plan_->outputs) bytes += spec.nbytes;
  set_traffic_bytes(bytes);
}

void PlanCommand::set_generator(const at::Generator& generator) {
  const auto& arguments = plan_->info.arguments;
  for (std::size_t i = 0; i < varying_arguments_.size(); ++i) {
    if (arguments[varying_arguments_[i]].kind == ArgumentKind::kGenerator) varying_values_[i] = generator;
  }
}

// Puts this call's addresses and values where the kernel finds them.
void PlanCommand::bind() {
  for (std::size_t i = 0; i < varying_arguments_.size(); ++i)
    arguments_[varying_arguments_[i]] = varying_values_[i];
  const std::size_t count = aliases_.size();
  for (std::size_t i = 0; i < count; ++i) retarget(aliases_[i], data_[i]);
  for (std::size_t i = 0; i < outputs_.size(); ++i) {
    if (outputs_[i].defined()) retarget(outputs_[i], data_[count + i]);
  }
}

Status PlanCommand::run(Stream& /*stream*/) {
  const KernelScope scope(threads_);
  bind();
  static thread_local torch::jit::Stack stack;
  stack.assign(arguments_.begin(), arguments_.end());
  const OpInfo& info = plan_->info;
  switch (info.style) {
    case OutputStyle::kWritesArguments:
      info.op.callBoxed(stack);
      restore_lazy_bits();
      break;
    case OutputStyle::kOutOverload:
      info.out_overload->callBoxed(stack);
      restore_lazy_bits();
      break;
    case OutputStyle::kFunctional:
      run_functional(stack);
      break;
  }
  stack.clear();
  return Status::ok();
}

void PlanCommand::restore_lazy_bits() {
  for (const LazyBits& bits : lazy_bits_)
    bridge::restore_lazy_bits(aliases_[bits.alias], bits.conj, bits.neg);
  for (const at::Tensor& output : outputs_) {
    if (output.defined() && output.is_complex()) bridge::restore_lazy_bits(output, false, false);
  }
}

void PlanCommand::run_functional(torch::jit::Stack& stack) {
  OutputSteering steering;
  for (std::size_t i = 0; i < outputs_.size(); ++i) {
    const at::Tensor& output = outputs_[i];
    if (!output.defined() || output.nbytes() == 0) continue;
    const std::size_t first_guess = steering.expected(output.nbytes());
    steering.expect(output.data_ptr(), output.nbytes(),
                    plan_->outputs[i].ordinal.get().value_or(first_guess));
  }
  {
    const SteeringScope scope(steering);
    plan_->info.op.callBoxed(stack);
  }
  const auto check = [&](std::size_t i, const at::Tensor& result) {
    const at::Tensor& expected = outputs_[i];
    TORCH_CHECK(
        result.defined() == expected.defined() && (!result.defined() || result.sizes() == expected.sizes()),
        plan_->info.name, ": output ", i, " is not what the first such call returned");
    if (!result.defined() || result.numel() == 0) return;
    const bool lazy = result.is_conj() || result.is_neg();
    if (result.const_data_ptr() == expected.const_data_ptr() && result.strides() == expected.strides() &&
        !lazy)
      return;
    // The kernel took the memory in another order, or for a temporary; or its result is lazily conjugated. A
    // partial overlap needs a detour.
    count_copied_result(plan_->info.name);
    const void* const data = result.storage().data();
    if (const auto ordinal = steering.ordinal_of(expected.nbytes(), data))
      plan_->outputs[i].ordinal.learn(*ordinal);
    const bool inside = data == expected.storage().data();
    expected.copy_(inside ? result.clone() : result);
  };
  if (plan_->returns_list) {
    const auto list = stack.back().toTensorList();
    for (std::size_t i = 0; i < list.size(); ++i) check(i, list.get(i));
    return;
  }
  const std::size_t first = stack.size() - outputs_.size();
  // Results may sit in each other's memory (two outputs of one size, taken crosswise): save those first.
  for (std::size_t i = 0; i < outputs_.size(); ++i) {
    const at::Tensor& result = stack[first + i].toTensor();
    if (!result.defined() || result.numel() == 0) continue;
    for (std::size_t j = 0; j < outputs_.size(); ++j) {
      if (i == j || !outputs_[j].defined() || result.storage().data() != outputs_[j].storage().data())
        continue;
      const at::Tensor saved = result.clone();
      stack[first + i] = saved;
      break;
    }
  }
  for (std::size_t i = 0; i < outputs_.size(); ++i) check(i, stack[first + i].toTensor());
}

void PlanCommand::retire() noexcept {
  if (!has_place_ || !plan_->commands.give_back(*this)) delete this;
}

}  // namespace neuron::bridge
