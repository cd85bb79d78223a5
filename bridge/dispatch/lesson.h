// Lesson: what a call returns and resizes, found out without its data and without waiting for the device.
//
// A small call's kernel runs on made-up values (sample_call.h), where sizes cannot follow from values: it knows its
// strides, and whether it takes the dtypes. Otherwise the meta function is asked.
#pragma once

#include <vector>

#include "bridge/dispatch/call_key.h"

namespace neuron::bridge {

struct Lesson {
  torch::jit::Stack results;           // without data, or with made-up data
  std::vector<c10::IValue> arguments;  // afterwards
  bool from_kernel = false;
  // Set when nothing was learnt: why the kernel must see the call itself.
  const char* refusal = nullptr;
};

// About the call whose key this is. Never raises for a bad call.
Lesson learn(const OpInfo& info, const CallKey& key, Arguments arguments);

}  // namespace neuron::bridge
