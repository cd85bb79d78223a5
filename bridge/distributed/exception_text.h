// exception_text: what an exception says, without the C++ stack that c10's carry.
#pragma once

#include <c10/util/Exception.h>

#include <string>

namespace neuron::bridge {

inline std::string exception_text(const std::exception& error) {
  const auto* ours = dynamic_cast<const c10::Error*>(&error);
  return ours != nullptr ? ours->what_without_backtrace() : error.what();
}

}  // namespace neuron::bridge
