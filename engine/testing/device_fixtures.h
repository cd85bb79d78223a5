// What tests of cores and streams start from.
#pragma once

#include <cstddef>
#include <memory>
#include <type_traits>
#include <utility>

#include "engine/device/core.h"
#include "engine/device/stream.h"

namespace neuron {

// A core with little memory, which the host has in any case. Throws CheckFailure when it cannot be made.
std::unique_ptr<Core> make_test_core(std::size_t memory_limit = std::size_t{64} << 20);
std::unique_ptr<Core> make_test_core(const CoreOptions& options);

// Sets the process's inline policy for a scope.
class InlinePolicyScope {
 public:
  explicit InlinePolicyScope(InlinePolicy policy);
  ~InlinePolicyScope();
  InlinePolicyScope(const InlinePolicyScope&) = delete;
  InlinePolicyScope& operator=(const InlinePolicyScope&) = delete;

 private:
  const InlinePolicy previous_;
};

// A command that calls `function`, which returns nothing or a Status.
template <typename Function>
std::unique_ptr<Command> make_command(Function function, RunMode mode = RunMode::kQueued,
                                      const char* name = "test", CommandKind kind = CommandKind::kCompute) {
  auto body = [function = std::move(function)](Stream& stream) mutable -> Status {
    (void)stream;
    if constexpr (std::is_void_v<decltype(function())>) {
      function();
      return Status::ok();
    } else {
      return function();
    }
  };
  return std::make_unique<FunctionCommand<decltype(body)>>(kind, mode, name, std::move(body));
}

template <typename Function>
StreamPosition submit(Stream& stream, Function function, RunMode mode = RunMode::kQueued,
                      const char* name = "test") {
  return stream.submit(make_command(std::move(function), mode, name));
}

}  // namespace neuron
