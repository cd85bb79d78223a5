// Log: lines on stderr, whole, with time, process, thread, level, component and rank.
//
// The shape is the Neuron runtime's, so that its readers read ours. NEURON_RT_LOG_LEVEL says which lines
// appear. May be called from any thread, with or without locks held; never fails.
#pragma once

#include <string_view>

#include "engine/base/check.h"
#include "engine/base/env.h"

namespace neuron {

// One load of the process's level.
bool log_enabled(LogLevel level);

// Writes regardless of the level: for reports that must appear.
void log_line(LogLevel level, std::string_view component, std::string_view message);

// The parts are put together only when the level is on.
template <typename... Parts>
void log(LogLevel level, std::string_view component, const Parts&... parts) {
  if (log_enabled(level)) log_line(level, component, detail::concatenate(parts...));
}

}  // namespace neuron
