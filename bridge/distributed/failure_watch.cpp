#include "bridge/distributed/failure_watch.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "bridge/distributed/flight_dump.h"
#include "bridge/distributed/flight_dump_file.h"
#include "bridge/distributed/flight_recorder.h"
#include "engine/base/fork.h"
#include "engine/base/log.h"

namespace neuron::bridge {

namespace {

void write_dump(const std::string& reason) {
  const std::string path = flight_dump_path();
  if (path.empty()) return;  // no call was ever made
  const Status written = write_flight_dump(path, flight_dump({.reason = reason}));
  if (!written.is_ok()) return log_line(LogLevel::kError, "distributed", written.message());
  const std::string prefix = path.substr(0, path.find_last_not_of("0123456789") + 1);
  log_line(LogLevel::kWarn, "distributed",
           "flight recorder: the last calls are in " + path +
               "; once every rank has written, neuron-emu explain " + prefix + "* says who diverged first");
}

class Watch {
 public:
  // Leaked: its thread ends with the process.
  static Watch& get() {
    static auto* watch = new Watch();
    return *watch;
  }

  void add(const std::shared_ptr<Communicator>& communicator) {
    const std::lock_guard lock(mutex_);
    watched_.push_back(communicator);
    added_.notify_one();
  }

  void remove(const Communicator& communicator) {
    const std::lock_guard lock(mutex_);
    std::erase_if(watched_, [&communicator](const auto& entry) {
      const auto group = entry.lock();
      return !group || group.get() == &communicator;
    });
  }

  void look() {
    // Whoever comes second returns when the first one's dump is there.
    const std::lock_guard one_at_a_time(look_mutex_);
    std::string reason;
    for (const auto& group : take_failed()) reason = group->status().message();
    if (!reason.empty()) write_dump(reason);
  }

  void end(const std::string& reason) {
    look();
    {
      const std::lock_guard lock(mutex_);
      if (watched_.empty()) return;
      watched_.clear();
    }
    const std::lock_guard one_at_a_time(look_mutex_);
    write_dump(reason);
  }

 private:
  Watch() : thread_([this] { run(); }) {}

  std::vector<std::shared_ptr<Communicator>> take_failed() {
    std::vector<std::shared_ptr<Communicator>> failed;
    // The last reference to a group is not given up under the lock.
    std::vector<std::shared_ptr<Communicator>> living;
    const std::lock_guard lock(mutex_);
    std::erase_if(watched_, [&](const auto& entry) {
      auto group = entry.lock();
      if (!group) return true;
      living.push_back(group);
      if (!group->aborted()) return false;
      failed.push_back(std::move(group));
      return true;
    });
    return failed;
  }

  [[noreturn]] void run() {
    constexpr std::chrono::milliseconds kTick{20};
    for (;;) {
      {
        std::unique_lock lock(mutex_);
        added_.wait(lock, [this] { return !watched_.empty(); });
      }
      look();
      std::this_thread::sleep_for(kTick);
    }
  }

  std::mutex look_mutex_;  // taken before mutex_
  std::mutex mutex_;
  std::condition_variable added_;
  std::vector<std::weak_ptr<Communicator>> watched_;
  std::thread thread_;
};

}  // namespace

void watch_for_failure(const std::shared_ptr<Communicator>& communicator) {
  if (FlightRecorder::get().enabled()) Watch::get().add(communicator);
}

void stop_watching(const Communicator& communicator) {
  if (FlightRecorder::get().enabled() && !in_forked_child()) Watch::get().remove(communicator);
}

void dump_at_end(const std::string& reason) {
  if (FlightRecorder::get().enabled() && !in_forked_child()) Watch::get().end(reason);
}

void look_for_failures() {
  if (FlightRecorder::get().enabled() && !in_forked_child()) Watch::get().look();
}

}  // namespace neuron::bridge
