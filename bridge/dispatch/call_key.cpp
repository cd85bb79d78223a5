#include "bridge/dispatch/call_key.h"

#include <ATen/Context.h>

#include <bit>

#include "bridge/runtime/devices.h"

namespace neuron::bridge {

namespace {

// The switches that change what a kernel computes or allocates.
std::uint64_t switches() {
  const auto& context = at::globalContext();
  std::uint64_t word = static_cast<std::uint64_t>(c10::get_default_dtype_as_scalartype());
  word = word << 1 | static_cast<std::uint64_t>(context.deterministicAlgorithms());
  word = word << 1 | static_cast<std::uint64_t>(context.deterministicFillUninitializedMemory());
  word = word << 1 | static_cast<std::uint64_t>(context.userEnabledMkldnn());
  return word;
}

std::uint64_t tag_of(const c10::IValue& value) {
  if (value.isDouble()) return 1;
  if (value.isInt()) return 2;
  if (value.isBool()) return 3;
  if (value.isComplexDouble()) return 4;
  return 0;
}

}  // namespace

void CallKey::build(const OpInfo& info, Arguments values) {
  add(switches());
  for (std::size_t i = 0; i < info.arguments.size(); ++i) {
    const c10::IValue& value = values[i];
    const ArgumentInfo& argument = info.arguments[i];
    switch (argument.kind) {
      case ArgumentKind::kTensor:
        if (value.isNone()) {
          add(0);
        } else {
          add_tensor(value.toTensor(), argument, info);
        }
        break;
      case ArgumentKind::kTensorList:
        if (value.isNone()) {
          add(1);
        } else {
          const auto list = value.toListRef();
          add(list.size() << 1);
          for (const c10::IValue& element : list) {
            if (element.isNone()) {
              add(0);
            } else {
              add_tensor(element.toTensor(), argument, info);
            }
          }
        }
        break;
      case ArgumentKind::kScalar:
        add_scalar(value, info.scalars_by_value);
        break;
      case ArgumentKind::kScalarList:
        if (value.isNone()) {
          add(1);
        } else if (value.isDoubleList()) {
          add(value.toDoubleList().size() << 1);
        } else {
          const auto list = value.toListRef();
          add(list.size() << 1);
          for (const c10::IValue& element : list) add(tag_of(element));
        }
        break;
      case ArgumentKind::kGenerator:
        break;
      case ArgumentKind::kValue:
        add_value(value);
        break;
    }
  }
}

void CallKey::add_scalar(const c10::IValue& value, bool by_value) {
  add(tag_of(value));
  if (!by_value) return;
  if (value.isDouble()) add(std::bit_cast<std::uint64_t>(value.toDouble()));
  if (value.isInt()) add(static_cast<std::uint64_t>(value.toInt()));
}

void CallKey::add_tensor(const at::Tensor& tensor, const ArgumentInfo& argument, const OpInfo& info) {
  if (!tensor.defined()) {
    add(0);
    return;
  }
  const auto* impl = tensor.unsafeGetTensorImpl();
  const bool on_device = tensor.device().type() == c10::DeviceType::PrivateUse1;
  const bool host_scalar = is_host_scalar(tensor, argument);
  if (tensor.layout() != at::kStrided || impl->is_python_dispatch() || !tensor.has_storage() ||
      tensor.is_quantized() || impl->key_set().has(c10::DispatchKey::NestedTensorPrivateUse1) ||
      tensor._is_zerotensor()) {
    obstacle = "a tensor that is not plain and strided";
    return;
  }
  if (on_device) {
    if (device < 0) device = tensor.device().index();
    TORCH_CHECK(device == tensor.device().index(), info.name,
                ": Expected all tensors to be on the same device, but found at least two devices, neuron:",
                static_cast<int>(device), " and ", tensor.device(), "!");
  } else if (!host_scalar) {
    obstacle = "a host tensor among the arguments";
  } else if (argument.written) {
    obstacle = "a host tensor to be written to";
  }
  std::uint64_t word = 1;
  word = word << 8 | static_cast<std::uint64_t>(tensor.scalar_type());
  word = word << 8 | static_cast<std::uint64_t>(tensor.dim());
  word = word << 1 | static_cast<std::uint64_t>(on_device);
  word = word << 1 | static_cast<std::uint64_t>(impl->is_wrapped_number());
  word = word << 1 | static_cast<std::uint64_t>(tensor.is_conj());
  word = word << 1 | static_cast<std::uint64_t>(tensor.is_neg());
  add(word);
  const auto sizes = tensor.sizes();
  const auto strides = tensor.strides();
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    add(static_cast<std::uint64_t>(sizes[i]));
    add(static_cast<std::uint64_t>(strides[i]));
  }
  tensors.push_back({&tensor, argument.written, host_scalar});
}

void CallKey::add_value(const c10::IValue& value) {
  if (value.isNone()) {
    add(0x10);
  } else if (value.isInt()) {
    add(0x11);
    add(static_cast<std::uint64_t>(value.toInt()));
  } else if (value.isBool()) {
    add(value.toBool() ? 0x13 : 0x12);
  } else if (value.isDouble()) {
    add(0x14);
  } else if (value.isIntList()) {
    const auto list = value.toListRef();
    add(0x15);
    add(list.size());
    for (const c10::IValue& element : list) add(static_cast<std::uint64_t>(element.toInt()));
  } else if (value.isBoolList()) {
    const auto list = value.toListRef();
    add(0x16);
    add(list.size());
    for (const c10::IValue& element : list) add(element.toBool() ? 1 : 0);
  } else if (value.isString()) {
    // Strings choose an algorithm ("sum", "bicubic"): short, and few.
    const auto& text = value.toStringRef();
    add(0x17);
    add(text.size());
    for (const char c : text) add(static_cast<std::uint64_t>(c));
  } else if (value.isDevice()) {
    const c10::Device wanted = value.toDevice();
    if (wanted.type() == c10::DeviceType::PrivateUse1 && device < 0) device = resolve(wanted.index());
    add(0x18);
    add(static_cast<std::uint64_t>(wanted.type()) << 8 | static_cast<std::uint8_t>(wanted.index()));
  } else {
    obstacle = "an argument of a type that has no place in a plan's key";
  }
}

bool varies_within_key(ArgumentKind kind, const c10::IValue& value) {
  switch (kind) {
    case ArgumentKind::kScalar:
    case ArgumentKind::kScalarList:
    case ArgumentKind::kGenerator:
      return true;
    case ArgumentKind::kValue:
      return value.isDouble();
    case ArgumentKind::kTensor:
    case ArgumentKind::kTensorList:
      break;
  }
  return false;
}

}  // namespace neuron::bridge
