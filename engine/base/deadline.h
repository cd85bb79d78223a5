// Deadline: the moment at which a wait gives up. Every wait in the engine takes one.
#pragma once

#include <chrono>

namespace neuron {

class Deadline {
 public:
  using Clock = std::chrono::steady_clock;

  static Deadline never() { return Deadline(Clock::time_point::max()); }
  static Deadline after(std::chrono::nanoseconds timeout) { return Deadline(Clock::now() + timeout); }

  bool passed() const { return when_ != Clock::time_point::max() && Clock::now() >= when_; }
  bool is_never() const { return when_ == Clock::time_point::max(); }
  Clock::time_point when() const { return when_; }

 private:
  explicit Deadline(Clock::time_point when) : when_(when) {}
  Clock::time_point when_;
};

}  // namespace neuron
