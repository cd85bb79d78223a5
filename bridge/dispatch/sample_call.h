// SampleCall: an operator's CPU kernel, run on made-up host tensors of a call's sizes.
//
// What it returns tells what the call will return, without waiting for the device: where sizes do not follow from
// values. Numbers are in [0, 1) for floating point, so that matrices are regular, and zeros, which are valid indices,
// for the rest. The user's tensors and generators are not touched.
#pragma once

#include <ATen/core/stack.h>

#include <vector>

#include "bridge/dispatch/op_info.h"

namespace neuron::bridge {

// Why calls of a kernel that refuses are not asynchronous.
inline constexpr const char* kRefusesSample = "its kernel does not take made-up values";

class SampleCall {
 public:
  enum class Outcome : std::uint8_t {
    kDone,
    kRefused,   // the kernel raised: wrong arguments, or made-up values that it cannot take
    kTooLarge,  // it asked for more than `budget` bytes
  };
  static constexpr std::size_t kNoBudget = ~std::size_t{0};

  // Runs the call.
  SampleCall(const OpInfo& info, Arguments arguments, std::size_t budget = kNoBudget);

  Outcome outcome() const { return outcome_; }
  // Requires: kDone.
  const torch::jit::Stack& results() const { return results_; }
  const std::vector<c10::IValue>& arguments() const { return arguments_; }

 private:
  Outcome outcome_ = Outcome::kDone;
  torch::jit::Stack results_;
  std::vector<c10::IValue> arguments_;
};

}  // namespace neuron::bridge
