#include "bridge/runtime/autograd_threads.h"

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>
#include <thread>

#include "bridge/runtime/devices.h"

namespace neuron::bridge {

namespace {

// How long a first thread may take to begin when nobody knows whether there is one.
constexpr std::chrono::milliseconds kFirstThread{50};

std::atomic<bool> counted{false};

struct Threads {
  int begun = 0;  // have had the lock: autograd names its threads after that
  int busy =
      0;  // of those, run or want to: with work, or about to let go of a graph, for which they need the lock
};

Threads look() {
  Threads threads;
  std::error_code error;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task", error)) {
    std::ifstream file(task.path() / "stat");
    std::string line;
    std::getline(file, line);
    // "7 (pt_autograd_0) S …": the name may hold anything, but for autograd's.
    const std::size_t end = line.rfind(')');
    if (line.find("(pt_autograd_") == std::string::npos || end == std::string::npos) continue;
    ++threads.begun;
    if (line.compare(end, 3, ") S") != 0) ++threads.busy;
  }
  return threads;
}

}  // namespace

void note_devices_counted() noexcept { counted.store(true, std::memory_order_relaxed); }

void wait_for_autograd_threads(std::chrono::milliseconds limit) {
  if (!counted.load(std::memory_order_relaxed)) return;
  const auto start = std::chrono::steady_clock::now();
  // Seen at rest twice: what waits for the lock is awake by the second time, since this thread does not hold it.
  for (int rests = 0;;) {
    const Threads threads = look();
    rests = threads.begun >= device_count() && threads.busy == 0 ? rests + 1 : 0;
    const auto waited = std::chrono::steady_clock::now() - start;
    if (rests == 2 || waited >= (threads.begun == 0 ? std::min(kFirstThread, limit) : limit)) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

}  // namespace neuron::bridge
