// ArgumentList: the words of a command line, taken one after the other.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/result.h"

namespace neuron::nccom_test {

class ArgumentList {
 public:
  // "--name=value" becomes two words, "-r2" as well.
  explicit ArgumentList(std::span<const std::string> arguments);

  bool empty() const { return next_ == words_.size(); }
  // Requires: not empty.
  const std::string& peek() const { return words_[next_]; }
  std::string take() { return words_[next_++]; }
  // The value of option `name`. kInvalidArgument when the list ends here or goes on with an option.
  Result<std::string> take_value(std::string_view name);

 private:
  std::vector<std::string> words_;
  std::size_t next_ = 0;
};

// True for "-r" and "--nworkers"; false for "-5" and "-".
bool is_option(std::string_view word);

}  // namespace neuron::nccom_test
