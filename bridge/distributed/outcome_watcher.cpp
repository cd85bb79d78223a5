#include "bridge/distributed/outcome_watcher.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <iterator>
#include <mutex>
#include <thread>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <utility>

namespace neuron::bridge {

namespace {

struct Watched {
  std::vector<std::shared_ptr<const Work>> works;
  c10::intrusive_ptr<c10::ivalue::Future> future;

  bool ended() const {
    return std::all_of(works.begin(), works.end(), [](const auto& work) { return work->is_completed(); });
  }
};

c10d::WorkResult result_of(const std::vector<std::shared_ptr<const Work>>& works) {
  for (const auto& work : works) {
    const Status status = work->status();
    if (status.code() == StatusCode::kTimeout) return c10d::WorkResult::TIMEOUT;
    if (!status.is_ok()) return c10d::WorkResult::COMM_ERROR;
  }
  return c10d::WorkResult::SUCCESS;
}

class Watcher {
 public:
  // Leaked: its thread ends with the process.
  static Watcher& get() {
    static auto* watcher = new Watcher();
    return *watcher;
  }

  void add(Watched watched) {
    const std::lock_guard lock(mutex_);
    watched_.push_back(std::move(watched));
    added_.notify_one();
  }

 private:
  Watcher() : thread_([this] { run(); }) {}

  [[noreturn]] void run() {
    constexpr std::chrono::milliseconds kSlice{5};
    for (;;) {
      std::vector<Watched> ended;
      std::shared_ptr<const Work> pending;
      {
        std::unique_lock lock(mutex_);
        added_.wait(lock, [this] { return !watched_.empty(); });
        const auto first_ended =
            std::partition(watched_.begin(), watched_.end(), [](const Watched& w) { return !w.ended(); });
        ended.assign(std::make_move_iterator(first_ended), std::make_move_iterator(watched_.end()));
        watched_.erase(first_ended, watched_.end());
        if (!watched_.empty()) pending = watched_.front().works.back();
      }
      for (const Watched& watched : ended) {
        watched.future->markCompleted(c10::IValue(static_cast<std::int64_t>(result_of(watched.works))));
      }
      // In slices, since another one may end first.
      if (ended.empty() && pending) (void)pending->wait(Deadline::after(kSlice));
    }
  }

  std::mutex mutex_;
  std::condition_variable added_;
  std::vector<Watched> watched_;
  std::thread thread_;
};

}  // namespace

void watch_outcome(std::vector<std::shared_ptr<const Work>> works,
                   c10::intrusive_ptr<c10::ivalue::Future> future) {
  Watcher::get().add({std::move(works), std::move(future)});
}

}  // namespace neuron::bridge
