// StreamOrder: which positions of other streams a stream waits for, as far as it remembers. Internal to Stream.
//
// A wait that was submitted at position `at` holds for all that is submitted after it. Waits chain: who waits for
// a position of a stream waits for what that stream waited for before that position. Only the last few waits for
// each stream are remembered, so an answer of "no" may be wrong and a "yes" never is. Thread-safe.
#pragma once

#include <vector>

#include "engine/base/mutex.h"
#include "engine/device/command.h"

namespace neuron {

class StreamOrder {
 public:
  // The stream has submitted, at its position `at`, a wait for `position` of `other`, whose own order is `via`.
  void note(const Stream& other, StreamPosition position, const StreamOrder& via, StreamPosition at);
  // Whether what the stream submits from now on runs after `position` of `other`.
  bool after(const Stream& other, StreamPosition position) const;

 private:
  struct Wait {
    const Stream* other;
    StreamPosition position;
    StreamPosition at;
  };

  // What the waits submitted up to `at` say, the latest for each stream.
  std::vector<Wait> known_at(StreamPosition at) const;
  void remember(const Wait& wait) REQUIRES(mutex_);

  mutable Mutex mutex_;
  std::vector<Wait> waits_ GUARDED_BY(mutex_);  // in the order of submission, but for concurrent submitters
};

}  // namespace neuron
