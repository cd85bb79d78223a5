#include "engine/device/memory_report.h"

#include <array>
#include <cstdio>

namespace neuron {

namespace {

std::string gigabytes(double nbytes) {
  char out[32];
  std::snprintf(out, sizeof out, "%.3fGB", nbytes / static_cast<double>(std::size_t{1} << 30));
  return out;
}

std::string row(const char* name, double nbytes) {
  char out[96];
  std::snprintf(out, sizeof out, "\n  %-36s %12s %16.0f B", name, gigabytes(nbytes).c_str(), nbytes);
  return out;
}

}  // namespace

Status out_of_memory(const std::string& core_name, std::size_t requested, const MemoryStats& stats,
                     const std::string& bound) {
  const auto current = [](const MemoryCounter& counter) { return static_cast<double>(counter.current); };
  const double reserved = current(stats.reserved_bytes);
  std::string text = "Failed to allocate " + gigabytes(static_cast<double>(requested)) +
                     " (alignment: none, usage: tensors) on " + core_name + " (emulated): " + bound;
  text += row("requested", static_cast<double>(requested));
  text += row("allocated", current(stats.allocated_bytes));
  text += row("freed, but in use by other streams", current(stats.kept_bytes));
  text += row("reserved", reserved);
  text += row("cached (reserved, not in use)",
              reserved - current(stats.allocated_bytes) - current(stats.kept_bytes));
  text += row("total", static_cast<double>(stats.limit));
  return Status(StatusCode::kOutOfMemory, text);
}

}  // namespace neuron
