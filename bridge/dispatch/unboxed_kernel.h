// UnboxedKernel: the path of a call (execute.h) for an operator of one C++ signature.
//
// A boxed kernel gets its arguments on a stack that owns them: it is allocated for the call, and taking a second
// reference to a tensor that Python holds takes Python's global lock. Here the arguments are lent, and nothing is
// counted. Worth it for the operators that programs call most; registration.cpp has the list of signatures.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <c10/util/MaybeOwned.h>

#include <array>
#include <tuple>
#include <type_traits>
#include <utility>

#include "bridge/dispatch/execute.h"
#include "bridge/dispatch/operators.h"

namespace neuron::bridge {

// The arguments of one call as values that own nothing. Must not outlive the call.
template <std::size_t kCount>
class LentArguments {
 public:
  template <typename... Args>
  explicit LentArguments(const Args&... arguments) : values_{lend(arguments)...} {}
  ~LentArguments() {
    for (c10::IValue& value : values_) {
      if (!value.isTensor()) continue;
      at::Tensor tensor = std::move(value).toTensor();
      Lending::destroyBorrow(tensor);
    }
  }
  LentArguments(const LentArguments&) = delete;
  LentArguments& operator=(const LentArguments&) = delete;

  Arguments values() const { return values_; }

 private:
  using Lending = c10::MaybeOwnedTraits<at::Tensor>;

  static c10::IValue lend(const at::Tensor& tensor) { return Lending::createBorrow(tensor); }
  static c10::IValue lend(const at::Scalar& scalar) { return scalar; }

  std::array<c10::IValue, kCount> values_;
};

template <typename Signature>
class UnboxedKernel;

// `Result` is at::Tensor, or at::Tensor& for operators that write to their first argument and return it.
template <typename Result, typename... Args>
class UnboxedKernel<Result(Args...)> {
 public:
  // `handle`: whose schema this signature is.
  explicit UnboxedKernel(const c10::OperatorHandle& handle)
      : operator_(std::make_shared<LazyOperator>(handle)) {}

  Result operator()(Args... arguments) const {
    Operator& known = operator_->get();
    Outputs outputs;
    const char* reason = nullptr;
    {
      const LentArguments<sizeof...(Args)> lent(arguments...);
      reason = try_submit(known.info, known.plans, lent.values(), outputs);
    }
    if (reason != nullptr) {
      torch::jit::Stack stack{c10::IValue(arguments)...};
      execute_drained(known.info, reason, stack);
      outputs.tensors.push_back(std::move(stack.back()).toTensor());
    }
    if constexpr (std::is_same_v<Result, at::Tensor&>) {
      return std::get<0>(std::tie(arguments...));
    } else {
      return std::move(outputs.tensors.front());
    }
  }

 private:
  std::shared_ptr<LazyOperator> operator_;
};

}  // namespace neuron::bridge
