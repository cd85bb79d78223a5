// DeathWatch: tells at once that a process has ended. Internal to this folder.
//
// Who waits looks at its peers 50 times a second; a launcher that has seen the same death may end this process before
// the next look. One thread for the process, asleep in poll(), started by the first watch.
#pragma once

#include <cstdint>
#include <functional>
#include <map>

#include "engine/base/mutex.h"

namespace neuron {

class DeathWatch {
 public:
  using Ticket = std::uint64_t;

  // The process's own; never destroyed.
  static DeathWatch& get();

  // Calls `on_death` once, on the watch's thread, when the process of `pidfd` has ended. It must not block, nor come
  // back here. The descriptor must stay open until remove(). 0: no thread could be started.
  Ticket add(int pidfd, std::function<void()> on_death) EXCLUDES(mutex_);
  // Afterwards `on_death` does not run any more.
  void remove(Ticket ticket) EXCLUDES(mutex_);

 private:
  struct Watched {
    int pidfd;
    std::function<void()> on_death;
  };

  DeathWatch() = default;
  bool start() REQUIRES(mutex_);
  void run();
  void wake() const;

  Mutex mutex_;
  std::map<Ticket, Watched> watched_ GUARDED_BY(mutex_);
  Ticket next_ GUARDED_BY(mutex_) = 1;
  int changed_ = -1;  // an eventfd: watched_ is another now
};

}  // namespace neuron
