// PeerWatch: which member processes have ended, and how.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "engine/collectives/death_watch.h"

namespace neuron {

class PeerWatch {
 public:
  PeerWatch() = default;
  ~PeerWatch();
  PeerWatch(const PeerWatch&) = delete;
  PeerWatch& operator=(const PeerWatch&) = delete;

  // Members that are threads of this process, or whose process the system does not show us (pid 0), are never
  // seen to end.
  // `on_death` is called once, on another thread, as soon as the process has ended; it must not block.
  void add(int rank, int pid, std::function<void()> on_death = {});

  // The members whose process has ended. Never blocks; a system call. Any thread.
  std::vector<int> dead() const;
  bool is_dead(int rank) const;
  // "pid 123, killed by signal 9 (Killed)", as far as the system tells.
  std::string obituary(int rank) const;

 private:
  struct Watched {
    int rank;
    int pid;
    int pidfd;  // -1: it had ended before we could watch it
    DeathWatch::Ticket ticket;
  };
  const Watched* find(int rank) const;
  std::vector<Watched> watched_;
};

}  // namespace neuron
