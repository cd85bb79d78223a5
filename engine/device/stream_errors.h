// StreamErrors: what has poisoned a stream, and from which position on.
//
// Errors are added by the thread that drains the stream; the other members may be called from any thread.
#pragma once

#include <atomic>
#include <vector>

#include "engine/base/mutex.h"
#include "engine/device/command.h"

namespace neuron {

class StreamErrors {
 public:
  // False: none is active. One load; the lock is taken only where this is true.
  bool any() const { return any_.load(std::memory_order_acquire); }

  // An error that is there already, or that was raised meanwhile, is not added.
  void add(StreamPosition position, StreamErrorPtr error) EXCLUDES(mutex_);
  // The first active error, or null.
  StreamErrorPtr active() EXCLUDES(mutex_);
  // The first active error that was there at `position`, or null.
  StreamErrorPtr at(StreamPosition position) const EXCLUDES(mutex_);
  // The first active error, which no other caller gets unless it is permanent; or null.
  StreamErrorPtr take() EXCLUDES(mutex_);

 private:
  struct Entry {
    StreamPosition position;
    StreamErrorPtr error;
  };
  void forget_raised() REQUIRES(mutex_);

  std::atomic<bool> any_{false};
  mutable Mutex mutex_;
  std::vector<Entry> entries_ GUARDED_BY(mutex_);  // by position
};

}  // namespace neuron
