#include "bridge/distributed/tensor_checks.h"

#include <c10/util/Exception.h>

#include "bridge/distributed/dtype_map.h"
#include "bridge/rules/rules.h"

namespace neuron::bridge {

void check_tensor(const CallContext& call, const at::Tensor& tensor, const char* argument) {
  TORCH_CHECK_VALUE(tensor.defined(), call.name, ": ", argument, " is not a tensor");
  TORCH_CHECK_VALUE(tensor.device().is_privateuseone(), "Expected neuron device, got ",
                    tensor.device().type(), " (", call.name, ", argument ", argument, ")");
  TORCH_CHECK_VALUE(tensor.device().index() == call.device || limits_lifted(), call.name, ": ", argument,
                    " is on neuron:", static_cast<int>(tensor.device().index()),
                    ", but this process's device is neuron:", static_cast<int>(call.device));
  TORCH_CHECK_VALUE(tensor.layout() == c10::kStrided, call.name, ": ", argument,
                    " must be dense, got layout ", tensor.layout());
  (void)movable_dtype(tensor.scalar_type());
}

void check_tensors(const CallContext& call, const std::vector<at::Tensor>& tensors, const char* argument) {
  TORCH_CHECK_VALUE(!tensors.empty(), call.name, ": ", argument, " is an empty list");
  for (const at::Tensor& tensor : tensors) check_tensor(call, tensor, argument);
}

const at::Tensor& only_tensor(const CallContext& call, const std::vector<at::Tensor>& tensors,
                              const char* argument) {
  TORCH_CHECK_VALUE(tensors.size() == 1, call.name, ": ", argument,
                    " must hold one tensor (a process has one device), got ", tensors.size());
  check_tensor(call, tensors.front(), argument);
  return tensors.front();
}

void check_list(const CallContext& call, const std::vector<at::Tensor>& list, const char* argument) {
  TORCH_CHECK_VALUE(list.size() == static_cast<std::size_t>(call.size), call.name, ": ", argument, " holds ",
                    list.size(), " tensors, but the group has ", call.size, " ranks");
  check_tensors(call, list, argument);
}

const std::vector<at::Tensor>& only_list(const CallContext& call, const TensorLists& lists,
                                         const char* argument) {
  TORCH_CHECK_VALUE(lists.size() == 1, call.name, ": ", argument,
                    " must hold one list (a process has one device), got ", lists.size());
  check_list(call, lists.front(), argument);
  return lists.front();
}

void check_same_dtype(const CallContext& call, const std::vector<at::Tensor>& tensors,
                      const at::Tensor& like) {
  for (const at::Tensor& tensor : tensors) {
    TORCH_CHECK_TYPE(tensor.scalar_type() == like.scalar_type(), call.name,
                     ": tensors must have identical type, got ", tensor.scalar_type(), " and ",
                     like.scalar_type());
  }
}

void check_concatenation(const CallContext& call, const at::Tensor& whole, const at::Tensor& part,
                         const char* whole_name, const char* part_name) {
  TORCH_CHECK_TYPE(whole.scalar_type() == part.scalar_type(), call.name, ": ", whole_name, " has type ",
                   whole.scalar_type(), ", ", part_name, " has type ", part.scalar_type());
  TORCH_CHECK_VALUE(whole.numel() == part.numel() * call.size, call.name, ": ", whole_name,
                    " must have world size times as many elements as ", part_name, ": got ", whole.numel(),
                    " and ", part.numel(), " for ", call.size, " ranks");
}

void check_same_numel(const CallContext& call, const at::Tensor& a, const at::Tensor& b, const char* a_name,
                      const char* b_name) {
  TORCH_CHECK_VALUE(a.numel() == b.numel(), call.name, ": ", a_name, " has ", a.numel(), " elements, ",
                    b_name, " has ", b.numel());
}

void check_root(const CallContext& call, std::int64_t root) {
  TORCH_CHECK_VALUE(root >= 0 && root < call.size, "Invalid rootRank ", root, " (for ", call.name,
                    ") with world size ", call.size);
}

void check_peer(const CallContext& call, std::int64_t peer, const char* argument) {
  TORCH_CHECK_VALUE(peer >= 0 && peer < call.size, call.name, ": invalid ", argument, " ", peer,
                    " in a group of ", call.size, " ranks");
}

std::vector<std::size_t> split_counts(const CallContext& call, const at::Tensor& tensor,
                                      const std::vector<std::int64_t>& splits, const char* argument) {
  const auto size = static_cast<std::size_t>(call.size);
  const std::int64_t rows = tensor.dim() == 0 ? 1 : tensor.size(0);
  const auto row_numel = static_cast<std::size_t>(rows == 0 ? 0 : tensor.numel() / rows);
  if (splits.empty()) {
    TORCH_CHECK_VALUE(rows % call.size == 0, call.name, ": dimension 0 of ", argument, " (", rows,
                      ") is not divisible by the group's ", call.size, " ranks; give split sizes");
    return std::vector<std::size_t>(size, static_cast<std::size_t>(rows / call.size) * row_numel);
  }
  TORCH_CHECK_VALUE(splits.size() == size, call.name, ": ", splits.size(), " split sizes for ", argument,
                    ", but the group has ", call.size, " ranks");
  std::vector<std::size_t> counts;
  counts.reserve(size);
  std::int64_t total = 0;
  for (const std::int64_t split : splits) {
    TORCH_CHECK_VALUE(split >= 0, call.name, ": negative split size ", split, " for ", argument);
    total += split;
    counts.push_back(static_cast<std::size_t>(split) * row_numel);
  }
  TORCH_CHECK_VALUE(total == rows, call.name, ": split sizes of ", argument, " add up to ", total,
                    ", but its dimension 0 is ", rows);
  return counts;
}

}  // namespace neuron::bridge
