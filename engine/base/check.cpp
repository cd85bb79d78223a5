#include "engine/base/check.h"

namespace neuron::detail {

void check_failed(const char* file, int line, const char* condition, const std::string& message) {
  std::string text = concatenate("neuron-emu: internal check failed: ", condition);
  if (!message.empty()) text += ": " + message;
  throw CheckFailure(text + concatenate(" (", file, ":", line, ")"));
}

}  // namespace neuron::detail
