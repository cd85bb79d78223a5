// Result<T>: a value, or the Status that says why there is none.
#pragma once

#include <optional>
#include <utility>

#include "engine/base/check.h"
#include "engine/base/status.h"

namespace neuron {

template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}         // NOLINT(google-explicit-constructor)
  Result(Status status) : status_(std::move(status)) {  // NOLINT(google-explicit-constructor)
    NEURON_CHECK(!status_.is_ok(), "a Result without a value needs an error");
  }

  bool is_ok() const { return value_.has_value(); }
  const Status& status() const { return status_; }

  // Requires: is_ok().
  T& value() & {
    NEURON_CHECK(value_.has_value(), "value() of a failed Result: ", status_.message());
    return *value_;
  }
  const T& value() const& {
    NEURON_CHECK(value_.has_value(), "value() of a failed Result: ", status_.message());
    return *value_;
  }
  T&& value() && {
    NEURON_CHECK(value_.has_value(), "value() of a failed Result: ", status_.message());
    return std::move(*value_);
  }

 private:
  Status status_;
  std::optional<T> value_;
};

}  // namespace neuron
