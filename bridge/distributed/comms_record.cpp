#include "bridge/distributed/comms_record.h"

#include <algorithm>
#include <cctype>
#include <memory>
#include <string_view>
#include <torch/csrc/distributed/c10d/ParamCommsUtils.hpp>
#include <tuple>
#include <utility>

namespace neuron::bridge {

namespace {

// The members' ranks as start, start + stride, …
struct Strided {
  int start = 0;
  int stride = 1;
};

constexpr int kIrregular = -1;

Strided strided(const std::vector<int>& ranks) {
  Strided found{ranks.front(), 1};
  if (ranks.size() > 1) found.stride = ranks[1] - ranks[0];
  for (std::size_t i = 1; i < ranks.size(); ++i) {
    if (ranks[i] - ranks[i - 1] != found.stride) found.stride = kIrregular;
  }
  return found;
}

std::int64_t elements(const std::vector<at::Tensor>& tensors) {
  std::int64_t sum = 0;
  for (const at::Tensor& tensor : tensors) sum += tensor.numel();
  return sum;
}

c10::ScalarType dtype_of(const CommsCall& call) {
  if (!call.inputs.empty()) return call.inputs.front().scalar_type();
  return call.outputs.empty() ? c10::ScalarType::Byte : call.outputs.front().scalar_type();
}

std::tuple<std::string, std::string> names_of(const RecordedGroup& group) {
  return {group.name, group.description};
}

std::shared_ptr<torch::ParamCommsDebugInfo> info_of(const RecordedGroup& group, const CommsCall& call) {
  const auto [start, stride] = strided(group.global_ranks);
  auto info = std::make_shared<torch::ParamCommsDebugInfo>(
      names_of(group), call.rank, std::string(call.name), elements(call.inputs), elements(call.outputs),
      dtype_of(call), call.input_splits, call.output_splits, start, stride,
      static_cast<int>(group.global_ranks.size()), call.async);
  info->setSequenceInfo(call.sequence, call.point_to_point);
  return info;
}

std::vector<c10::IValue> arguments_of(const RecordedGroup& group, const CommsCall& call) {
  const auto [start, stride] = strided(group.global_ranks);
  std::vector<c10::IValue> arguments;
  if (!call.inputs.empty()) arguments.emplace_back(call.inputs);
  arguments.emplace_back(std::make_tuple(call.sequence, call.point_to_point));
  arguments.emplace_back(names_of(group));
  arguments.emplace_back(call.rank);
  arguments.emplace_back(call.name);
  arguments.emplace_back(call.input_splits);
  arguments.emplace_back(call.output_splits);
  arguments.emplace_back(start);
  arguments.emplace_back(stride);
  arguments.emplace_back(static_cast<std::int64_t>(group.global_ranks.size()));
  arguments.emplace_back(call.async);
  return arguments;
}

}  // namespace

std::string comms_name(c10d::OpType type) {
  if (type == c10d::OpType::ALLTOALL || type == c10d::OpType::ALLTOALL_BASE) return "all_to_all";
  std::string name = c10d::opTypeToString(type);
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char letter) { return static_cast<char>(std::tolower(letter)); });
  return name;
}

CommsRecord::CommsRecord(const RecordedGroup& group, CommsCall call)
    : call_(std::move(call)),
      arguments_(arguments_of(group, call_)),
      info_(c10::DebugInfoKind::PARAM_COMMS_INFO, info_of(group, call_)),
      function_(at::RecordScope::FUNCTION) {
  if (!function_.isActive()) return;
  const std::string_view name = at::kParamCommsCallName;
  if (function_.needsInputs()) {
    function_.before(name, c10::ArrayRef<const c10::IValue>(arguments_.data(), arguments_.size()));
  } else {
    function_.before(name);
  }
  if (function_.needsOutputs()) function_.setOutputs(std::vector<c10::IValue>{call_.outputs});
}

}  // namespace neuron::bridge
