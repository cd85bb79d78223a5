// The tensors inside an argument of an operator: alone, in a list, or in a list with gaps.
#pragma once

#include <ATen/core/ivalue.h>
#include <c10/core/DeviceType.h>

#include <optional>

namespace neuron::bridge {

inline bool on_device(const at::Tensor& tensor) {
  return tensor.defined() && tensor.device().type() == c10::DeviceType::PrivateUse1;
}

inline bool names_device(const c10::IValue& value) {
  return value.isDevice() && value.toDevice().type() == c10::DeviceType::PrivateUse1;
}

// Calls `look(const at::Tensor&)` for each, undefined ones included.
template <typename Look>
void for_each_tensor(const c10::IValue& value, Look look) {
  if (value.isTensor()) {
    look(value.toTensor());
  } else if (value.isTensorList() || value.isOptionalTensorList()) {
    for (const c10::IValue& element : value.toListRef()) {
      if (!element.isNone()) look(element.toTensor());
    }
  }
}

// The same argument with `map(const at::Tensor&) -> at::Tensor` in the place of each; or nothing when it
// holds no tensors by its type.
template <typename Map>
std::optional<c10::IValue> map_tensors(const c10::IValue& value, Map map) {
  if (value.isTensor()) return c10::IValue(map(value.toTensor()));
  if (value.isTensorList()) {
    c10::List<at::Tensor> list;
    for (const c10::IValue& element : value.toListRef()) list.push_back(map(element.toTensor()));
    return c10::IValue(std::move(list));
  }
  if (value.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> list;
    for (const c10::IValue& element : value.toListRef()) {
      list.push_back(element.isNone() ? std::nullopt : std::optional<at::Tensor>(map(element.toTensor())));
    }
    return c10::IValue(std::move(list));
  }
  return std::nullopt;
}

}  // namespace neuron::bridge
