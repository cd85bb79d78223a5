#include "bridge/dispatch/lesson.h"

#include <ATen/ops/empty_strided.h>

#include <optional>
#include <set>
#include <string>

#include "bridge/dispatch/kernel_scope.h"
#include "bridge/dispatch/sample_call.h"
#include "bridge/dispatch/tensors_in.h"
#include "bridge/runtime/alias.h"

namespace neuron::bridge {

namespace {

// What runs in a moment is small.
constexpr std::size_t kSampleBytes = std::size_t{1} << 20;
constexpr std::size_t kSampleBudget = std::size_t{16} << 20;

// A tensor without data for the meta function. Host scalars stay: their value may decide nothing about a
// shape.
at::Tensor to_meta(const at::Tensor& tensor) {
  if (!on_device(tensor)) return tensor;
  return at::empty_strided(tensor.sizes(), tensor.strides(), tensor.options().device(at::kMeta));
}

c10::IValue to_meta(const c10::IValue& value) {
  auto mapped = map_tensors(value, [](const at::Tensor& tensor) { return to_meta(tensor); });
  if (mapped) return *std::move(mapped);
  if (names_device(value)) return c10::Device(at::kMeta);
  if (value.isGenerator()) return {};
  return value;
}

// Of the operators that are neither structured nor pointwise those that every model calls: torch has their meta
// functions in Python, and the first one of a process imports a second's worth of modules.
bool is_common(const std::string& name) {
  static const std::set<std::string> kNames = {
      "aten::convolution_overrideable",
      "aten::embedding",
      "aten::embedding_dense_backward",
      "aten::index_select",
      "aten::native_group_norm",
      "aten::native_group_norm_backward",
      "aten::native_layer_norm",
      "aten::native_layer_norm_backward",
      "aten::_fused_rms_norm",
      "aten::_fused_rms_norm_backward",
      "aten::_scaled_dot_product_flash_attention_for_cpu",
      "aten::_scaled_dot_product_flash_attention_for_cpu_backward",
  };
  return kNames.contains(name);
}

bool sizes_follow_from_types(const OpInfo& info) {
  if (info.random || info.op.hasTag(at::Tag::nondeterministic_seeded) ||
      info.op.hasTag(at::Tag::dynamic_output_shape) || info.op.hasTag(at::Tag::data_dependent_output))
    return false;
  return info.structured || info.pointwise || info.style == OutputStyle::kWritesArguments ||
         is_common(info.op.schema().name());
}

Lesson from_meta(const OpInfo& info, Arguments arguments) {
  Lesson lesson;
  for (const c10::IValue& value : arguments) lesson.results.push_back(to_meta(value));
  lesson.arguments.assign(lesson.results.begin(), lesson.results.end());
  try {
    const KernelScope scope(0);
    info.op.callBoxed(lesson.results);
  } catch (const std::exception&) {
    // Either the call is wrong, which the kernel itself will say best, or there is no meta function.
    lesson.refusal = "its meta function does not take the call";
  }
  return lesson;
}

bool is_small(const CallKey& key) {
  std::size_t bytes = 0;
  for (const TensorArgument& argument : key.tensors) {
    const at::Tensor& tensor = *argument.tensor;
    bytes += extent_bytes(tensor.sizes(), tensor.strides(), tensor.itemsize());
  }
  return bytes <= kSampleBytes;
}

// Nothing: ask the meta function.
std::optional<Lesson> from_kernel(const OpInfo& info, Arguments arguments) {
  const SampleCall sample(info, arguments, kSampleBudget);
  switch (sample.outcome()) {
    case SampleCall::Outcome::kDone:
      return Lesson{sample.results(), sample.arguments(), true, nullptr};
    case SampleCall::Outcome::kTooLarge:
      return std::nullopt;
    case SampleCall::Outcome::kRefused:
      break;
  }
  // What is written in place keeps its size, whatever the values.
  if (info.style == OutputStyle::kWritesArguments) return std::nullopt;
  return Lesson{{}, {}, false, kRefusesSample};
}

}  // namespace

Lesson learn(const OpInfo& info, const CallKey& key, Arguments arguments) {
  if (sizes_follow_from_types(info) && is_small(key)) {
    if (auto lesson = from_kernel(info, arguments)) return *std::move(lesson);
  }
  return from_meta(info, arguments);
}

}  // namespace neuron::bridge
