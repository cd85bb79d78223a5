#include "engine/base/log.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <cstdio>
#include <ctime>
#include <string>

#include "engine/base/clock.h"

namespace neuron {

namespace {

const char* level_name(LogLevel level) {
  switch (level) {
    case LogLevel::kError:
      return "ERROR";
    case LogLevel::kWarn:
      return "WARN";
    case LogLevel::kInfo:
      return "INFO";
    case LogLevel::kDebug:
      return "DEBUG";
    case LogLevel::kTrace:
      return "TRACE";
  }
  return "?";
}

std::string timestamp() {
  const std::int64_t now = wall_ns();
  const auto seconds = static_cast<std::time_t>(now / kNanosecondsPerSecond);
  std::tm parts{};
  localtime_r(&seconds, &parts);
  char date[32];
  std::strftime(date, sizeof date, "%Y-%b-%d %H:%M:%S", &parts);
  char out[48];
  std::snprintf(out, sizeof out, "%s.%04d", date, static_cast<int>(now % kNanosecondsPerSecond / 100'000));
  return out;
}

}  // namespace

bool log_enabled(LogLevel level) { return level <= env().log_level; }

void log_line(LogLevel level, std::string_view component, std::string_view message) {
  std::string line = detail::concatenate(timestamp(), " ", getpid(), ":", syscall(SYS_gettid), " ",
                                         level_name(level), "  NEURON_EMU:", component, "   ");
  if (env().rank) line += "[rank " + *env().rank + "] ";
  line += message;
  line += '\n';
  // One write, so that lines of several ranks do not mix. A closed stderr is nobody's error.
  [[maybe_unused]] const auto written = write(STDERR_FILENO, line.data(), line.size());
}

}  // namespace neuron
