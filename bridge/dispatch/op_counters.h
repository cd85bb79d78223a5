// Counters: which operators ran as device commands, which drained a stream, and why, and which made their results
// elsewhere than in the memory meant for them.
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
void count_copied_result(const char* op);

std::map<std::string, std::uint64_t> executed_counts();
// (operator, reason) -> calls
std::map<std::pair<std::string, std::string>, std::uint64_t> drained_counts();
// operator -> results that were copied into the device's memory
std::map<std::string, std::uint64_t> copied_result_counts();
void reset_counts();

}  // namespace neuron::bridge
