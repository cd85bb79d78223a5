#include "bridge/dispatch/overlap.h"

#include <ATen/MemoryOverlap.h>

#include <algorithm>

#include "bridge/runtime/alias.h"

namespace neuron::bridge {

namespace {

struct Extent {
  const std::byte* begin;
  const std::byte* end;
  const TensorArgument* argument;
};

bool matters(const OpInfo& info, const TensorArgument& one, const TensorArgument& other) {
  if (!one.written && !other.written) return false;
  switch (at::get_overlap_status(one.tensor->unsafeGetTensorImpl(), other.tensor->unsafeGetTensorImpl())) {
    case at::MemOverlapStatus::Partial:
      return true;
    case at::MemOverlapStatus::Full:
      return !info.pointwise;
    case at::MemOverlapStatus::No:
    case at::MemOverlapStatus::TooHard:
      return false;
  }
  return false;
}

}  // namespace

bool written_overlaps(const OpInfo& info, const CallKey& key) {
  c10::SmallVector<Extent, 8> extents;
  for (const TensorArgument& argument : key.tensors) {
    const at::Tensor& tensor = *argument.tensor;
    if (tensor.numel() == 0) continue;
    const auto* begin = static_cast<const std::byte*>(tensor.const_data_ptr());
    const std::size_t nbytes = extent_bytes(tensor.sizes(), tensor.strides(), tensor.itemsize());
    extents.push_back({begin, begin + nbytes, &argument});
  }
  // In the order of addresses only neighbours can meet: lists hold hundreds of tensors.
  std::sort(extents.begin(), extents.end(),
            [](const Extent& a, const Extent& b) { return a.begin < b.begin; });
  for (std::size_t i = 0; i < extents.size(); ++i) {
    for (std::size_t j = i + 1; j < extents.size() && extents[j].begin < extents[i].end; ++j) {
      if (matters(info, *extents[i].argument, *extents[j].argument)) return true;
    }
  }
  return false;
}

}  // namespace neuron::bridge
