#include "bridge/dispatch/op_counters.h"

#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

namespace neuron::bridge {

namespace {

// One table for each thread, so that counting takes an uncontended lock.
struct ThreadCounts {
  std::mutex mutex;
  std::unordered_map<const char*, std::uint64_t> executed;
};

std::mutex registry_mutex;
std::vector<std::shared_ptr<ThreadCounts>>& registry() {
  static auto* tables = new std::vector<std::shared_ptr<ThreadCounts>>();
  return *tables;
}

std::map<std::pair<std::string, std::string>, std::uint64_t>& drained() {
  static auto* counts = new std::map<std::pair<std::string, std::string>, std::uint64_t>();
  return *counts;
}

std::map<std::string, std::uint64_t>& copied_results() {
  static auto* counts = new std::map<std::string, std::uint64_t>();
  return *counts;
}

ThreadCounts& mine() {
  thread_local const std::shared_ptr<ThreadCounts> counts = [] {
    auto fresh = std::make_shared<ThreadCounts>();
    const std::lock_guard<std::mutex> lock(registry_mutex);
    registry().push_back(fresh);
    return fresh;
  }();
  return *counts;
}

}  // namespace

void count_executed(const char* op) {
  ThreadCounts& counts = mine();
  const std::lock_guard<std::mutex> lock(counts.mutex);
  ++counts.executed[op];
}

void count_drained(const char* op, const char* reason) {
  const std::lock_guard<std::mutex> lock(registry_mutex);
  ++drained()[{op, reason}];
}

void count_copied_result(const char* op) {
  const std::lock_guard<std::mutex> lock(registry_mutex);
  ++copied_results()[op];
}

std::map<std::string, std::uint64_t> executed_counts() {
  std::map<std::string, std::uint64_t> sum;
  const std::lock_guard<std::mutex> lock(registry_mutex);
  for (const auto& counts : registry()) {
    const std::lock_guard<std::mutex> counts_lock(counts->mutex);
    for (const auto& [op, count] : counts->executed) sum[op] += count;
  }
  return sum;
}

std::map<std::pair<std::string, std::string>, std::uint64_t> drained_counts() {
  const std::lock_guard<std::mutex> lock(registry_mutex);
  return drained();
}

std::map<std::string, std::uint64_t> copied_result_counts() {
  const std::lock_guard<std::mutex> lock(registry_mutex);
  return copied_results();
}

void reset_counts() {
  const std::lock_guard<std::mutex> lock(registry_mutex);
  for (const auto& counts : registry()) {
    const std::lock_guard<std::mutex> counts_lock(counts->mutex);
    counts->executed.clear();
  }
  drained().clear();
  copied_results().clear();
}

}  // namespace neuron::bridge
