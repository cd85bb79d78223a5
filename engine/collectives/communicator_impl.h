// What a Communicator holds. Internal to this folder.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>

#include "engine/collectives/communicator.h"
#include "engine/collectives/group.h"
#include "engine/collectives/progress.h"

namespace neuron {

class Communicator::Impl {
 public:
  explicit Impl(std::unique_ptr<Group> joined)
      : group(std::move(joined)), timeout(group->options().timeout) {}

  std::chrono::nanoseconds timeout_of(const CollectiveRequest& request) const {
    const bool own = request.timeout.count() > 0;
    return bounded(own ? request.timeout : timeout.load(std::memory_order_relaxed));
  }
  // A deadline is now + timeout, which must not overflow.
  static std::chrono::nanoseconds bounded(std::chrono::nanoseconds timeout) {
    return std::min<std::chrono::nanoseconds>(timeout, std::chrono::hours(24 * 3650));
  }
  // A request (or unit) is in flight from before it takes its number until its outcome is known. Begun, it is
  // refused when the group is destroyed or in error; destroy() first refuses, then waits.
  Status begin(std::uint64_t count = 1);
  void end(std::uint64_t count = 1);
  // For point-to-point. Requires: the order lock.
  Progress& progress();

  const std::unique_ptr<Group> group;
  std::atomic<std::chrono::nanoseconds> timeout;

  // Held from the taking of a number until the command is in its stream, so that no stream has two commands
  // of the group in another order than that of their numbers. Taken before a stream's submission lock.
  std::mutex order;
  std::atomic<std::uint64_t> next_sequence{1};
  std::atomic<bool> destroyed{false};

  std::atomic<std::uint64_t> in_flight{0};
  std::mutex drained_mutex;
  std::condition_variable drained;

  // Made by the first point-to-point request, ended by destroy(); under the order lock. Goes before the
  // group.
  std::unique_ptr<Progress> point_to_point;
  std::uint64_t next_point_to_point = 1;  // under the order lock
};

}  // namespace neuron
