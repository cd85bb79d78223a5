#include "engine/collectives/death_watch.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <csignal>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "engine/base/fork.h"

namespace neuron {

DeathWatch& DeathWatch::get() {
  static DeathWatch& instance = *new DeathWatch();
  return instance;
}

DeathWatch::Ticket DeathWatch::add(int pidfd, std::function<void()> on_death) {
  const MutexLock lock(mutex_);
  if (!start()) return 0;
  const Ticket ticket = next_++;
  watched_.emplace(ticket, Watched{pidfd, std::move(on_death)});
  wake();
  return ticket;
}

void DeathWatch::remove(Ticket ticket) {
  if (ticket == 0 || in_forked_child()) return;
  const MutexLock lock(mutex_);
  // The thread may still poll the descriptor after it was closed; what it then sees belongs to no ticket.
  if (watched_.erase(ticket) != 0) wake();
}

bool DeathWatch::start() {
  if (changed_ >= 0) return true;
  const int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (fd < 0) return false;
  close_in_child(fd);
  changed_ = fd;
  // Signals are for the threads of the program.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    std::thread([this] { run(); }).detach();
  } catch (const std::system_error&) {
    forget_in_child(fd);
    close(fd);
    changed_ = -1;
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return changed_ >= 0;
}

void DeathWatch::wake() const {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(changed_, &one, sizeof one);
}

void DeathWatch::run() {
  pthread_setname_np(pthread_self(), "neuron-deaths");
  std::vector<pollfd> polled;
  std::vector<Ticket> tickets;
  for (;;) {
    {
      const MutexLock lock(mutex_);
      polled.assign(1, {.fd = changed_, .events = POLLIN, .revents = 0});
      tickets.assign(1, 0);
      for (const auto& [ticket, watched] : watched_) {
        polled.push_back({.fd = watched.pidfd, .events = POLLIN, .revents = 0});
        tickets.push_back(ticket);
      }
    }
    if (poll(polled.data(), polled.size(), -1) <= 0) continue;
    std::uint64_t count = 0;
    [[maybe_unused]] const ssize_t got = read(polled[0].fd, &count, sizeof count);
    const MutexLock lock(mutex_);
    for (std::size_t i = 1; i < polled.size(); ++i) {
      if (polled[i].revents == 0) continue;
      const auto found = watched_.find(tickets[i]);
      if (found == watched_.end()) continue;
      found->second.on_death();
      watched_.erase(found);
    }
  }
}

}  // namespace neuron
