#include "engine/nccom_test/argument_list.h"

#include <cctype>

namespace neuron::nccom_test {

ArgumentList::ArgumentList(std::span<const std::string> arguments) {
  for (const std::string& word : arguments) {
    const std::size_t equals = word.find('=');
    if (word.starts_with("--") && equals != std::string::npos) {
      words_.push_back(word.substr(0, equals));
      words_.push_back(word.substr(equals + 1));
    } else if (is_option(word) && word[1] != '-' && word.size() > 2) {
      words_.push_back(word.substr(0, 2));
      words_.push_back(word.substr(2));
    } else {
      words_.push_back(word);
    }
  }
}

Result<std::string> ArgumentList::take_value(std::string_view name) {
  if (empty() || is_option(peek()))
    return Status(StatusCode::kInvalidArgument,
                  std::string(name) + " needs a value" +
                      (empty() ? ", and the line ends there" : ", not the option " + peek()));
  return take();
}

bool is_option(std::string_view word) {
  return word.size() > 1 && word[0] == '-' && std::isdigit(static_cast<unsigned char>(word[1])) == 0;
}

}  // namespace neuron::nccom_test
