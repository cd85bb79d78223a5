#include "bridge/distributed/flight_record.h"

#include <algorithm>

namespace neuron::bridge {

void TensorShapes::add(const at::Tensor& tensor) {
  const c10::IntArrayRef shape = tensor.sizes();
  sizes.append(shape.begin(), shape.end());
  dimensions.push_back(static_cast<std::uint32_t>(shape.size()));
  dtypes.push_back(tensor.scalar_type());
}

void TensorShapes::add_parts(const std::vector<at::Tensor>& parts, Uneven uneven) {
  if (parts.empty()) return;
  const c10::IntArrayRef shape = parts.front().sizes();
  const auto is_like_first = [shape](const at::Tensor& part) { return part.sizes() == shape; };
  if (std::all_of(parts.begin(), parts.end(), is_like_first)) {
    sizes.push_back(static_cast<std::int64_t>(parts.size()));
    sizes.append(shape.begin(), shape.end());
    dimensions.push_back(static_cast<std::uint32_t>(shape.size() + 1));
    dtypes.push_back(parts.front().scalar_type());
  } else if (uneven == Uneven::kOneByOne) {
    for (const at::Tensor& part : parts) add(part);
  } else {
    std::int64_t elements = 0;
    for (const at::Tensor& part : parts) elements += part.numel();
    sizes.push_back(elements);
    dimensions.push_back(1);
    dtypes.push_back(parts.front().scalar_type());
  }
}

}  // namespace neuron::bridge
