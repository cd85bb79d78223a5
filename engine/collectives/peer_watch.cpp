#include "engine/collectives/peer_watch.h"

#include <poll.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <optional>
#include <utility>

#include "engine/base/check.h"
#include "engine/base/fork.h"

namespace neuron {

namespace {

// Of linux/pidfd.h since 6.15: how a process ended, also after its parent has collected it.
struct PidfdInfo {
  std::uint64_t mask;
  std::uint64_t cgroup;
  std::uint32_t ids[11];  // pid, tgid, ppid, four user and four group ids
  std::int32_t exit_code;
  std::uint32_t coredump[2];
};
static_assert(sizeof(PidfdInfo) == 72);  // the kernel's PIDFD_INFO_SIZE_VER1
constexpr std::uint64_t kInfoExit = 1U << 3;
constexpr unsigned long kGetInfo = _IOWR(0xFF, 11, PidfdInfo);

std::optional<int> exit_status_of_collected(int pidfd) {
  PidfdInfo info{};
  info.mask = kInfoExit;
  if (ioctl(pidfd, kGetInfo, &info) != 0 || (info.mask & kInfoExit) == 0) return std::nullopt;
  return info.exit_code;
}

// Before that it is the last field of /proc/<pid>/stat.
std::optional<int> exit_status_of_zombie(int pid) {
  std::FILE* file = std::fopen(("/proc/" + std::to_string(pid) + "/stat").c_str(), "rbe");
  if (file == nullptr) return std::nullopt;
  char line[2048];
  const std::size_t length = std::fread(line, 1, sizeof line - 1, file);
  std::fclose(file);
  line[length] = '\0';
  const char* after_name = std::strrchr(line, ')');  // the name may hold anything
  if (after_name == nullptr || std::strncmp(after_name, ") Z", 3) != 0) return std::nullopt;
  const char* last = std::strrchr(line, ' ');
  int status = 0;
  if (last == nullptr || std::sscanf(last, "%d", &status) != 1) return std::nullopt;
  return status;
}

std::string describe_status(int status) {
  if (WIFSIGNALED(status)) {
    const int signal = WTERMSIG(status);
    return detail::concatenate("killed by signal ", signal, " (", sigdescr_np(signal), ")");
  }
  return detail::concatenate("exited with code ", WEXITSTATUS(status));
}

}  // namespace

PeerWatch::~PeerWatch() {
  if (in_forked_child()) return;  // closed by the fork guard; the numbers may be others' by now
  for (const Watched& peer : watched_) {
    if (peer.pidfd < 0) continue;
    DeathWatch::get().remove(peer.ticket);
    forget_in_child(peer.pidfd);
    close(peer.pidfd);
  }
}

void PeerWatch::add(int rank, int pid, std::function<void()> on_death) {
  if (pid == 0 || pid == getpid()) return;
  const int pidfd = static_cast<int>(syscall(SYS_pidfd_open, pid, 0U));
  if (pidfd < 0 && errno != ESRCH) return;
  if (pidfd >= 0) close_in_child(pidfd);
  const bool told = pidfd >= 0 && on_death != nullptr;
  watched_.push_back({rank, pid, pidfd, told ? DeathWatch::get().add(pidfd, std::move(on_death)) : 0});
}

std::vector<int> PeerWatch::dead() const {
  std::vector<int> ranks;
  if (watched_.empty()) return ranks;
  std::vector<pollfd> polled(watched_.size());
  for (std::size_t i = 0; i < watched_.size(); ++i)
    polled[i] = {.fd = watched_[i].pidfd, .events = POLLIN, .revents = 0};
  if (poll(polled.data(), polled.size(), 0) < 0) return ranks;
  for (std::size_t i = 0; i < watched_.size(); ++i) {
    if (polled[i].fd < 0 || polled[i].revents != 0) ranks.push_back(watched_[i].rank);
  }
  return ranks;
}

const PeerWatch::Watched* PeerWatch::find(int rank) const {
  for (const Watched& peer : watched_) {
    if (peer.rank == rank) return &peer;
  }
  return nullptr;
}

bool PeerWatch::is_dead(int rank) const {
  const Watched* peer = find(rank);
  if (peer == nullptr) return false;
  if (peer->pidfd < 0) return true;
  pollfd polled{.fd = peer->pidfd, .events = POLLIN, .revents = 0};
  return poll(&polled, 1, 0) > 0;
}

std::string PeerWatch::obituary(int rank) const {
  const Watched* peer = find(rank);
  if (peer == nullptr) return "in this process";
  std::optional<int> status = exit_status_of_zombie(peer->pid);
  if (!status) status = exit_status_of_collected(peer->pidfd);
  return detail::concatenate("pid ", peer->pid, ", ", status ? describe_status(*status) : "ended");
}

}  // namespace neuron
