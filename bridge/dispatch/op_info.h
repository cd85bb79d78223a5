// OpInfo: what dispatch has to know about an operator, worked out once from its schema.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>
#include <c10/util/ArrayRef.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace neuron::bridge {

// The arguments of one call, in the schema's order; borrowed from the caller.
using Arguments = c10::ArrayRef<c10::IValue>;

enum class ArgumentKind : std::uint8_t {
  kTensor,      // Tensor, Tensor?
  kTensorList,  // Tensor[], Tensor?[]
  kScalar,      // Scalar, float: by type in the key, its value may change from call to call
  kScalarList,  // Scalar[], float[]: by length and type
  kGenerator,   // replaced by a CPU generator with a piece of the device generator's sequence
  kValue,       // everything else: by value in the key
};

struct ArgumentInfo {
  ArgumentKind kind;
  bool written;  // the schema says that the operator writes to it
  bool is_out;   // a keyword-only out= argument
  // A tensor in the place of numbers, which may be the host's: a fused optimizer's rate, foreach's scalars.
  bool holds_numbers;
};

// Whether this is a tensor of the host that stands for one number.
bool is_host_scalar(const at::Tensor& tensor, const ArgumentInfo& argument);

// How a functional call turns into work on outputs that exist beforehand.
enum class OutputStyle : std::uint8_t {
  kWritesArguments,  // in-place or out=: nothing to allocate
  kOutOverload,      // run the .out overload on outputs of ours
  kFunctional,       // run the operator itself, steer its allocations into outputs of ours
};

struct OpInfo {
  explicit OpInfo(const c10::OperatorHandle& handle);

  c10::OperatorHandle op;
  const char* name;  // "aten::add.Tensor"; lives for ever
  std::vector<ArgumentInfo> arguments;
  std::size_t returns;
  OutputStyle style;
  // Requires: style == kOutOverload.
  std::optional<c10::OperatorHandle> out_overload;
  // The meta function is the kernel's own shape computation, so that a plan needs no rehearsal.
  bool structured;
  // Shapes follow from the values of scalars (ranges): they are in the key by value.
  bool scalars_by_value;
  bool random;
  // Each element of the result comes from the elements at its place.
  bool pointwise;
  // Index of the argument that each return is, for kWritesArguments.
  std::vector<std::size_t> returned_arguments;
  // Why calls never run asynchronously, whatever their arguments; null: they may.
  const char* obstacle = nullptr;

 private:
  void find_returned_arguments();
  void check_returns();
};

}  // namespace neuron::bridge
