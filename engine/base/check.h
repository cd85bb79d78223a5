// NEURON_CHECK: an invariant of ours. A failure is a bug in this project, never the user's doing.
#pragma once

#include <sstream>
#include <stdexcept>
#include <string>

namespace neuron {

class CheckFailure : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

namespace detail {
[[noreturn]] void check_failed(const char* file, int line, const char* condition, const std::string& message);

template <typename... Parts>
std::string concatenate(const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  return out.str();
}
}  // namespace detail

}  // namespace neuron

#define NEURON_CHECK(condition, ...)                                              \
  do {                                                                            \
    if (!(condition)) [[unlikely]]                                                \
      ::neuron::detail::check_failed(__FILE__, __LINE__, #condition,              \
                                     ::neuron::detail::concatenate(__VA_ARGS__)); \
  } while (false)
