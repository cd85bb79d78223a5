// Timeline: what ran when on the cores of this process.
//
// A ring of spans: when it is full the oldest go. Off, it costs each command one relaxed load. All functions
// may be called from any thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/device/command.h"

namespace neuron {

struct Span {
  const char* name = "";  // valid for the life of the process
  CommandKind kind = CommandKind::kCompute;
  bool skipped = false;  // the stream was poisoned
  int core = 0;          // device index
  std::uint32_t stream = 0;
  StreamPosition position = 0;
  std::int64_t start_ns = 0, end_ns = 0;  // steady clock
  std::int64_t cpu_ns = 0;                // processor time that the thread took in between
  std::uint64_t bytes = 0;                // of device memory, read and written
  std::int64_t thread = 0;                // kernel id of the thread it ran on
};

namespace detail {
extern std::atomic<bool> timeline_on;
}

inline bool timeline_on() { return detail::timeline_on.load(std::memory_order_relaxed); }

// Starts an empty recording of at most `capacity` spans. Requires: capacity > 0.
void start_timeline(std::size_t capacity);
// What was recorded stays readable.
void stop_timeline();

// No effect when the timeline is off.
void record_span(const Span& span);

struct TimelineReading {
  std::vector<Span> spans;    // in the order of their ends
  std::uint64_t dropped = 0;  // older ones that the ring had no room for
};
TimelineReading read_timeline();

}  // namespace neuron
