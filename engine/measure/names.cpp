#include "engine/measure/names.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "engine/base/edit_distance.h"
#include "engine/testing/exact_values.h"

namespace neuron {

namespace {

template <typename Value>
using Name = std::pair<std::string_view, Value>;

constexpr std::array kShortDTypes{
    Name<DType>{"fp16", DType::kFloat16},        Name<DType>{"bf16", DType::kBFloat16},
    Name<DType>{"fp32", DType::kFloat32},        Name<DType>{"fp64", DType::kFloat64},
    Name<DType>{"fp8_e4m3", DType::kFloat8E4M3}, Name<DType>{"fp8_e5m2", DType::kFloat8E5M2},
};

constexpr std::array kReduceOps{
    Name<ReduceOp>{"sum", ReduceOp::kSum},         Name<ReduceOp>{"prod", ReduceOp::kProduct},
    Name<ReduceOp>{"min", ReduceOp::kMin},         Name<ReduceOp>{"max", ReduceOp::kMax},
    Name<ReduceOp>{"avg", ReduceOp::kAvg},         Name<ReduceOp>{"band", ReduceOp::kBand},
    Name<ReduceOp>{"bor", ReduceOp::kBor},         Name<ReduceOp>{"bxor", ReduceOp::kBxor},
    Name<ReduceOp>{"product", ReduceOp::kProduct},
};

// The first of each operation is its full name. permute shifts by one rank, as send and receive do.
constexpr std::array kOperations{
    Name<Operation>{"all_reduce", Operation::kAllReduce},
    Name<Operation>{"allr", Operation::kAllReduce},
    Name<Operation>{"all_gather", Operation::kAllGather},
    Name<Operation>{"allg", Operation::kAllGather},
    Name<Operation>{"reduce_scatter", Operation::kReduceScatter},
    Name<Operation>{"redsct", Operation::kReduceScatter},
    Name<Operation>{"redsc", Operation::kReduceScatter},
    Name<Operation>{"all_to_all", Operation::kAllToAll},
    Name<Operation>{"alltoall", Operation::kAllToAll},
    Name<Operation>{"send_receive", Operation::kSendReceive},
    Name<Operation>{"sendrecv", Operation::kSendReceive},
    Name<Operation>{"permute", Operation::kSendReceive},
    Name<Operation>{"broadcast", Operation::kBroadcast},
    Name<Operation>{"bcast", Operation::kBroadcast},
    Name<Operation>{"reduce", Operation::kReduce},
    Name<Operation>{"red", Operation::kReduce},
    Name<Operation>{"gather", Operation::kGather},
    Name<Operation>{"gath", Operation::kGather},
    Name<Operation>{"scatter", Operation::kScatter},
    Name<Operation>{"scat", Operation::kScatter},
    Name<Operation>{"barrier", Operation::kBarrier},
};

template <typename Names>
auto find(const Names& names, std::string_view name, std::string_view what)
    -> Result<typename Names::value_type::second_type> {
  std::vector<std::string_view> known;
  for (const auto& [known_name, value] : names) {
    if (known_name == name) return value;
    known.push_back(known_name);
  }
  return unknown_name(name, what, known);
}

std::vector<Name<DType>> dtype_names() {
  std::vector<Name<DType>> names;
  for (const DType dtype : all_dtypes()) {
    const std::string_view short_name = short_dtype_name(dtype);
    names.emplace_back(short_name, dtype);
    if (short_name != dtype_name(dtype)) names.emplace_back(dtype_name(dtype), dtype);
  }
  return names;
}

}  // namespace

Status unknown_name(std::string_view given, std::string_view what, std::span<const std::string_view> known) {
  std::string text = "'" + std::string(given) + "' is no " + std::string(what);
  const auto append_list = [&text](std::span<const std::string_view> names) {
    for (std::size_t i = 0; i < names.size(); ++i) text.append(i == 0 ? "" : ", ").append(names[i]);
  };
  const std::vector<std::string_view> near = nearest_names(given, known);
  if (!near.empty()) {
    text += "; did you mean ";
    append_list(near);
    text += '?';
  } else {
    text += '.';
  }
  text += " Allowed: ";
  append_list(known);
  return {StatusCode::kInvalidArgument, std::move(text)};
}

Result<DType> find_dtype(std::string_view name) { return find(dtype_names(), name, "datatype"); }

std::string_view short_dtype_name(DType dtype) {
  const auto* entry = std::find_if(kShortDTypes.begin(), kShortDTypes.end(),
                                   [&](const auto& candidate) { return candidate.second == dtype; });
  return entry != kShortDTypes.end() ? entry->first : dtype_name(dtype);
}

Result<ReduceOp> find_reduce_op(std::string_view name) { return find(kReduceOps, name, "reduction"); }

Result<Operation> find_operation(std::string_view name) { return find(kOperations, name, "operation"); }

std::string operation_spellings(Operation operation) {
  std::string text;
  for (const auto& [name, value] : kOperations) {
    if (value == operation) text.append(text.empty() ? "" : " / ").append(name);
  }
  return text;
}

}  // namespace neuron
