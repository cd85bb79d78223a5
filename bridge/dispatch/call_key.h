// CallKey: what makes two calls of one operator alike, so that one plan serves both.
//
// In the key: each tensor's dtype, sizes, strides and flags; integers, booleans, strings, devices by value;
// scalars and floats by type only, since a changing learning rate must not miss; the intra-op and global
// switches that alter dtype or algorithm.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>

#include <cstdint>

#include "bridge/dispatch/op_info.h"

namespace neuron::bridge {

// One tensor of a call, in the order of the arguments (lists flattened).
struct TensorArgument {
  const at::Tensor* tensor;  // borrowed from the arguments; undefined tensors are not listed
  bool written;
  bool host_scalar;  // is_host_scalar: its value is copied at submission
};

struct CallKey {
  c10::SmallVector<std::uint64_t, 64> words;
  std::uint64_t hash = 0;
  c10::SmallVector<TensorArgument, 8> tensors;
  c10::DeviceIndex device = -1;  // of the first device tensor
  // Set when no plan can be made: a sparse, quantized, nested or foreign tensor, a tensor subclass, a
  // generator, …
  const char* obstacle = nullptr;

  // Raises when device tensors live on different devices.
  void build(const OpInfo& info, Arguments values);

 private:
  void add_tensor(const at::Tensor& tensor, const ArgumentInfo& argument, const OpInfo& info);
  void add_scalar(const c10::IValue& value, bool by_value);
  void add_value(const c10::IValue& value);
  void add(std::uint64_t word) {
    words.push_back(word);
    hash = (hash ^ word) * 0x9E3779B97F4A7C15ULL;
    hash ^= hash >> 29;
  }
};

// Whether calls of one key may differ in this argument's value, which is then taken from each call anew. Of tensors the
// address differs.
bool varies_within_key(ArgumentKind kind, const c10::IValue& value);

}  // namespace neuron::bridge
