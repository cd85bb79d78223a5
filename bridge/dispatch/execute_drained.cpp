// The drained path: see execute.h.
#include <ATen/ops/empty_strided.h>
#include <c10/util/SmallVector.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "bridge/dispatch/execute.h"
#include "bridge/dispatch/kernel_scope.h"
#include "bridge/dispatch/op_counters.h"
#include "bridge/dispatch/tensors_in.h"
#include "bridge/dispatch/unsupported.h"
#include "bridge/runtime/alias.h"
#include "bridge/runtime/allocator.h"
#include "bridge/runtime/composed.h"
#include "bridge/runtime/devices.h"
#include "bridge/runtime/generator.h"
#include "bridge/runtime/storage.h"
#include "bridge/runtime/streams.h"

namespace neuron::bridge {

namespace {

// Device tensors as CPU tensors for one call. Tensors that share a storage share one here too, so that the
// kernel's own checks for overlap see what the user wrote.
class CallOnHost {
 public:
  CallOnHost(const OpInfo& info, torch::jit::Stack& stack) : info_(info) {
    const std::size_t first = stack.size() - info.arguments.size();
    for (std::size_t i = 0; i < info.arguments.size(); ++i) find_device(stack[first + i]);
    stream_ = &current_stream(device_);
    synchronize(*stream_);
    for (std::size_t i = 0; i < info.arguments.size(); ++i) {
      arguments_.push_back(to_host(stack[first + i], info.arguments[i]));
    }
  }

  torch::jit::Stack& arguments() { return arguments_; }
  bool has_composed() const { return has_composed_; }

  // What the kernel returned, on the device.
  c10::IValue to_device(const c10::IValue& value) {
    auto mapped = map_tensors(value, [this](const at::Tensor& tensor) { return to_device(tensor); });
    return mapped ? *std::move(mapped) : value;
  }

  void settle_aliases() {
    for (auto& [device, host] : aliases_) restore_lazy_bits(host, device.is_conj(), device.is_neg());
  }

  // out= arguments that the kernel gave another size get its strides, too.
  void finish_outputs() {
    for (auto& [device, host] : outputs_) {
      if (device.sizes() != host.sizes()) resize_out(device, host.sizes(), host.strides());
      device.copy_(host);
    }
    // Those that share their memory with an operand.
    for (auto& [device, host] : aliases_) {
      if (device.sizes() != host.sizes()) resize_out(device, host.sizes(), host.strides());
    }
    for (const Composed& argument : composed_) {
      if (argument.written) adopt(argument.device, argument.host, map_to_device_);
    }
  }

 private:
  struct Composed {
    at::Tensor device, host;
    bool written;
  };

  void find_device(const c10::IValue& value) {
    for_each_tensor(value, [this](const at::Tensor& tensor) { note(tensor); });
    if (names_device(value) && device_ < 0) device_ = resolve(value.toDevice().index());
  }

  void note(const at::Tensor& tensor) {
    if (!on_device(tensor)) return;
    check_layout(info_.name, tensor);
    has_composed_ = has_composed_ || is_composed(tensor);
    TORCH_CHECK(device_ < 0 || device_ == tensor.device().index(), info_.name,
                ": Expected all tensors to be on the same device, but found at least two devices, neuron:",
                static_cast<int>(device_), " and ", tensor.device(), "!");
    device_ = tensor.device().index();
  }

  c10::IValue to_host(const c10::IValue& value, const ArgumentInfo& argument) {
    auto mapped = map_tensors(value, [&](const at::Tensor& tensor) { return to_host(tensor, argument); });
    if (mapped) return *std::move(mapped);
    if (names_device(value)) return c10::Device(at::kCPU);
    if (argument.kind == ArgumentKind::kGenerator) {
      std::optional<at::Generator> given;
      if (value.isGenerator()) given = value.toGenerator();
      return cpu_generator(reserve_random(given, device_, 4));
    }
    return value;
  }

  at::Tensor to_host(const at::Tensor& tensor, const ArgumentInfo& argument) {
    if (!on_device(tensor)) return tensor;
    if (is_composed(tensor)) return composed_to_host(tensor, argument.written);
    if (argument.is_out && !shares_storage(tensor)) {
      // May grow: memory of its own. Its old contents do not matter.
      at::Tensor host = at::empty_strided(tensor.sizes(), tensor.strides(),
                                          tensor.options().device(at::kCPU).pinned_memory(false));
      outputs_.emplace_back(tensor, host);
      return host;
    }
    at::Tensor host = alias_of(tensor);
    if (has_composed_) carry_requires_grad(tensor, host);
    return host;
  }

  // A kernel for sparse tensors keeps what its backward needs only when there will be one.
  static void carry_requires_grad(const at::Tensor& device, const at::Tensor& host) {
    if (device.requires_grad()) host.unsafeGetTensorImpl()->set_requires_grad(true);
  }

  at::Tensor composed_to_host(const at::Tensor& tensor, bool written) {
    for (Composed& known : composed_) {
      if (!known.device.is_same(tensor)) continue;
      known.written = known.written || written;
      return known.host;
    }
    const auto alias = [this](const at::Tensor& part) { return alias_of(part); };
    composed_.push_back({tensor, rebuild(tensor, alias), written});
    carry_requires_grad(tensor, composed_.back().host);
    return composed_.back().host;
  }

  at::Tensor alias_of(const at::Tensor& tensor) {
    // Kernels ask whether a result is the operand itself.
    for (const auto& [device, known] : aliases_) {
      if (device.is_same(tensor)) return known;
    }
    at::Tensor alias = make_alias(tensor);
    alias.unsafeGetTensorImpl()->set_storage_keep_dtype(shared_storage(tensor));
    alias.unsafeGetTensorImpl()->set_storage_offset(tensor.storage_offset());
    aliases_.emplace_back(tensor, alias);
    return alias;
  }

  // Does another argument before this one look at the same memory? out= arguments come last.
  bool shares_storage(const at::Tensor& tensor) const {
    const auto* device = tensor.storage().unsafeGetStorageImpl();
    return std::any_of(storages_.begin(), storages_.end(),
                       [device](const auto& known) { return known.first == device; });
  }

  c10::Storage shared_storage(const at::Tensor& tensor) {
    const auto* device = tensor.storage().unsafeGetStorageImpl();
    for (const auto& [known, host] : storages_) {
      if (known == device) return host;
    }
    c10::Storage host(c10::make_intrusive<c10::StorageImpl>(
        c10::StorageImpl::use_byte_size_t(), tensor.storage().nbytes(),
        c10::DataPtr(const_cast<void*>(tensor.storage().data()), at::kCPU), nullptr, false));
    storages_.emplace_back(device, host);
    return host;
  }

  at::Tensor to_device(const at::Tensor& result) {
    if (!result.defined() || !result.device().is_cpu()) return result;
    check_layout(info_.name, result);
    if (is_composed(result)) {
      for (const Composed& argument : composed_) {
        if (argument.host.is_same(result)) return argument.device;
      }
      return rebuild(result, map_to_device_);
    }
    for (const auto& [device, host] : outputs_) {
      if (host.is_same(result)) return device;
    }
    for (const auto& [device, host] : aliases_) {
      if (host.is_same(result)) return device;
    }
    for (const auto& [device, host] : aliases_) {
      if (host.storage().unsafeGetStorageImpl() == result.storage().unsafeGetStorageImpl()) {
        return device.as_strided(result.sizes(), result.strides(), result.storage_offset());
      }
    }
    if (result.is_conj() || result.is_neg()) return to_device(result.resolve_conj().resolve_neg());
    at::Tensor copy = at::empty_strided(result.sizes(), result.strides(),
                                        result.options().device(neuron_device(device_)).requires_grad(false));
    const std::size_t nbytes = extent_bytes(result.sizes(), result.strides(), result.itemsize());
    // Fresh memory of a stream that is drained: nobody else uses it.
    if (nbytes > 0) std::memcpy(copy.data_ptr(), result.const_data_ptr(), nbytes);
    return copy;
  }

  const OpInfo& info_;
  c10::DeviceIndex device_ = -1;
  Stream* stream_ = nullptr;
  torch::jit::Stack arguments_;
  c10::SmallVector<std::pair<at::Tensor, at::Tensor>, 2> outputs_;
  c10::SmallVector<std::pair<at::Tensor, at::Tensor>, 4> aliases_;
  c10::SmallVector<std::pair<const c10::StorageImpl*, c10::Storage>, 4> storages_;
  bool has_composed_ = false;
  std::vector<Composed> composed_;
  const std::function<at::Tensor(const at::Tensor&)> map_to_device_ = [this](const at::Tensor& part) {
    return to_device(part);
  };
};

// Operators that take indices, or the shape of a nested tensor, from the host, as CUDA's do.
bool takes_host_tensors(const OpInfo& info) {
  static const std::unordered_set<std::string> kMixing = {"aten::index",
                                                          "aten::index_put",
                                                          "aten::index_put_",
                                                          "aten::_unsafe_index",
                                                          "aten::_unsafe_index_put",
                                                          "aten::_index_put_impl_",
                                                          "aten::_nested_from_padded"};
  const std::string& name = info.op.schema().name();
  return kMixing.count(name) > 0 || name.rfind("aten::", 0) != 0;
}

void check_devices(const OpInfo& info, const torch::jit::Stack& stack) {
  if (takes_host_tensors(info)) return;
  const std::size_t first = stack.size() - info.arguments.size();
  const at::Tensor* device = nullptr;
  const at::Tensor* host = nullptr;
  const auto look = [&](const at::Tensor& tensor, const ArgumentInfo& argument) {
    if (!tensor.defined()) return;
    if (on_device(tensor)) device = &tensor;
    const bool number = tensor.dim() == 0 || argument.holds_numbers;
    if (tensor.device().is_cpu() && (argument.written || !number)) host = &tensor;
  };
  for (std::size_t i = 0; i < info.arguments.size(); ++i) {
    const ArgumentInfo& argument = info.arguments[i];
    for_each_tensor(stack[first + i], [&](const at::Tensor& tensor) { look(tensor, argument); });
  }
  TORCH_CHECK(device == nullptr || host == nullptr, info.name,
              ": Expected all tensors to be on the same device, but found at least two devices, ",
              device == nullptr ? at::Device(at::kCPU) : device->device(), " and cpu!");
}

}  // namespace

void execute_drained(const OpInfo& info, const char* reason, torch::jit::Stack& stack) {
  check_devices(info, stack);
  CallOnHost call(info, stack);
  if (!call.has_composed()) check_has_cpu_kernel(info);
  count_drained(info.name, reason);
  torch::jit::Stack& values = call.arguments();
  {
    const KernelScope scope(0);
    info.op.callBoxed(values);
    call.settle_aliases();
  }
  call.finish_outputs();
  c10::SmallVector<c10::IValue, 4> results;
  for (const c10::IValue& value : values) results.push_back(call.to_device(value));
  torch::jit::drop(stack, info.arguments.size());
  for (auto& value : results) stack.push_back(std::move(value));
}

}  // namespace neuron::bridge
