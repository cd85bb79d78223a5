// Counters: which operators ran as device commands, and which drained a stream, and why.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>

namespace neuron::bridge {

// Names must live for ever (OpInfo's do). Thread-safe; the first costs an increment of the calling thread's
// own table.
void count_executed(const char* op);
void count_drained(const char* op, const char* reason);

std::map<std::string, std::uint64_t> executed_counts();
// (operator, reason) -> calls
std::map<std::pair<std::string, std::string>, std::uint64_t> drained_counts();
void reset_counts();

}  // namespace neuron::bridge
