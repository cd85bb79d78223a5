#include "engine/measure/run_ranks.h"

#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <optional>
#include <thread>
#include <vector>

#include "engine/base/check.h"
#include "engine/base/deadline.h"
#include "engine/measure/rank_failure.h"

namespace neuron {

namespace {

void say(const RankLaunch& launch, const std::string& what) {
  std::fprintf(stderr, "%s: %s\n", launch.program.c_str(), what.c_str());
}

bool run_rank(const RankLaunch& launch, const RankBody& body, int rank, Bootstrap& bootstrap) {
  try {
    return body(rank, bootstrap);
  } catch (const RankFailure& failure) {
    // Whoever has caused it says more.
    if (failure.code() != StatusCode::kPeerDied && failure.code() != StatusCode::kAborted)
      say(launch, "rank " + std::to_string(rank) + ": " + failure.what());
  } catch (const std::exception& error) {
    say(launch, "rank " + std::to_string(rank) + ": " + error.what());
  }
  return false;
}

bool run_threads(const RankLaunch& launch, const RankBody& body) {
  LocalBootstrap bootstrap;
  std::atomic<bool> good{true};
  std::vector<std::thread> threads;
  for (int rank = 0; rank < launch.ranks; ++rank) {
    threads.emplace_back([&, rank] {
      if (!run_rank(launch, body, rank, bootstrap)) good.store(false, std::memory_order_relaxed);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return good.load(std::memory_order_relaxed);
}

// Holds back the signals that ask a program to end, and shows them as a descriptor, so that the launch can
// be taken down first.
class EndSignals {
 public:
  EndSignals() {
    sigset_t ends;
    sigemptyset(&ends);
    for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGQUIT}) sigaddset(&ends, number);
    pthread_sigmask(SIG_BLOCK, &ends, &before_);
    fd_ = signalfd(-1, &ends, SFD_CLOEXEC);
    NEURON_CHECK(fd_ >= 0, "signalfd: ", std::strerror(errno));
  }
  ~EndSignals() {
    close(fd_);
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  EndSignals(const EndSignals&) = delete;
  EndSignals& operator=(const EndSignals&) = delete;

  int fd() const { return fd_; }
  const sigset_t& mask_before() const { return before_; }
  // Requires: fd() is readable.
  int take() const {
    signalfd_siginfo info{};
    return read(fd_, &info, sizeof info) == sizeof info ? static_cast<int>(info.ssi_signo) : SIGTERM;
  }

 private:
  sigset_t before_{};
  int fd_;
};

// The children of one launch. Kills those that are left when it goes, and collects all.
class RankChildren {
 public:
  RankChildren(const RankLaunch& launch, const EndSignals& signals) : launch_(launch), signals_(signals) {}
  ~RankChildren() {
    for (std::size_t rank = 0; rank < pids_.size(); ++rank) {
      if (runs(rank)) {
        kill(pids_[rank], SIGKILL);
        close(ends_[rank].fd);
      }
      waitpid(pids_[rank], nullptr, 0);
    }
  }
  RankChildren(const RankChildren&) = delete;
  RankChildren& operator=(const RankChildren&) = delete;

  void add(pid_t pid) {
    const auto fd = static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
    NEURON_CHECK(fd >= 0, "pidfd_open: ", std::strerror(errno));
    ends_.push_back({fd, POLLIN, 0});
    pids_.push_back(pid);
  }

  // Until all have ended, the grace has passed, or a signal asks for the end.
  bool wait() {
    ends_.push_back({signals_.fd(), POLLIN, 0});
    bool good = true;
    std::optional<Deadline> limit;
    const auto runs = [](const pollfd& end) { return end.fd >= 0; };
    while (std::any_of(ends_.begin(), ends_.end() - 1, runs)) {
      if (limit && limit->passed()) {
        tell_late();
        return false;
      }
      // poll() passes over negative descriptors: those of ranks that have ended.
      if (poll(ends_.data(), ends_.size(), limit ? 20 : -1) < 0) continue;
      if (ends_.back().revents != 0) {
        signal_ = signals_.take();
        return false;
      }
      good = look() && good;
      if (!good && !limit) limit = Deadline::after(launch_.grace);
    }
    return good;
  }

  int signal() const { return signal_; }  // that has ended wait(); 0: none

 private:
  // Looks at those that have ended. They stay zombies, so that the others can read how.
  bool look() {
    bool good = true;
    for (std::size_t rank = 0; rank < pids_.size(); ++rank) {
      if (ends_[rank].fd < 0 || ends_[rank].revents == 0) continue;
      siginfo_t end{};
      waitid(P_PID, static_cast<id_t>(pids_[rank]), &end, WEXITED | WNOWAIT);
      if (end.si_code != CLD_EXITED) {
        say(launch_, detail::concatenate("rank ", rank, " (pid ", pids_[rank], ") was ended by signal ",
                                         end.si_status, " (", strsignal(end.si_status), ")"));
      }
      close(ends_[rank].fd);
      ends_[rank].fd = -1;
      good = good && end.si_code == CLD_EXITED && end.si_status == 0;
    }
    return good;
  }

  bool runs(std::size_t rank) const { return ends_[rank].fd >= 0; }

  void tell_late() const {
    for (std::size_t rank = 0; rank < pids_.size(); ++rank) {
      if (!runs(rank)) continue;
      say(launch_, detail::concatenate("rank ", rank, " (pid ", pids_[rank],
                                       ") did not end after another one had failed; it is killed"));
    }
  }

  const RankLaunch& launch_;
  const EndSignals& signals_;
  std::vector<pid_t> pids_;
  std::vector<pollfd> ends_;  // of the ranks, -1 once ended; in wait() also that of the signals
  int signal_ = 0;
};

[[noreturn]] void be_rank(const RankLaunch& launch, const RankBody& body, int rank, pid_t parent,
                          const std::string& directory) {
  // The second look is for a parent that ended before the first line.
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) std::_Exit(1);
  prctl(PR_SET_NAME, (launch.program + ":" + std::to_string(rank)).c_str());  // at most 15 letters are kept
  DirectoryBootstrap bootstrap(directory);
  const bool good = run_rank(launch, body, rank, bootstrap);
  std::fflush(nullptr);
  std::_Exit(good ? 0 : 1);
}

// The signal that ended the launch, or 0; `good` as run_ranks() gives it.
int run_children(const RankLaunch& launch, const RankBody& body, const std::string& directory, bool& good) {
  const EndSignals signals;
  RankChildren children(launch, signals);
  const pid_t parent = getpid();
  std::fflush(nullptr);
  for (int rank = 0; rank < launch.ranks; ++rank) {
    const pid_t pid = fork();
    NEURON_CHECK(pid >= 0, "fork of rank ", rank, ": ", std::strerror(errno));
    if (pid == 0) {
      pthread_sigmask(SIG_SETMASK, &signals.mask_before(), nullptr);
      be_rank(launch, body, rank, parent, directory);
    }
    children.add(pid);
  }
  good = children.wait();
  return children.signal();
}

bool run_processes(const RankLaunch& launch, const RankBody& body) {
  std::string directory = (std::filesystem::temp_directory_path() / "neuron-launch-XXXXXX").string();
  NEURON_CHECK(mkdtemp(directory.data()) != nullptr, "mkdtemp ", directory, ": ", std::strerror(errno));
  bool good = false;
  const int number = run_children(launch, body, directory, good);
  std::error_code ignored;
  std::filesystem::remove_all(directory, ignored);
  // Ranks and files are gone: now the signal may have its way.
  if (number != 0) (void)raise(number);
  return good;
}

}  // namespace

bool run_ranks(const RankLaunch& launch, const RankBody& body) {
  return launch.processes ? run_processes(launch, body) : run_threads(launch, body);
}

}  // namespace neuron
