// HostMemory: how much memory the host and the control groups of this process can still give.
//
// The kernel answers a page that it cannot give with a signal or by killing a process; so device memory asks
// here first and keeps a reserve. The answer is a snapshot: callers take memory in small steps and ask before
// each.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/base/status.h"

namespace neuron {

// Where the kernel's files are; tests give others.
struct HostMemoryPaths {
  std::string meminfo = "/proc/meminfo";
  std::string own_cgroup = "/proc/self/cgroup";
  std::string cgroup_root = "/sys/fs/cgroup";
};

class HostMemory {
 public:
  // `reserve`: bytes to leave free under every bound; nothing = a sixteenth of the bound, at most 4 GiB. A
  // 64th of the bound, at most 256 MiB, is kept whatever was asked: below that the kernel would start to kill
  // processes.
  explicit HostMemory(std::optional<std::uint64_t> reserve = std::nullopt, const HostMemoryPaths& paths = {});

  // Ok when `nbytes` more leave the reserve under every bound free; else kOutOfMemory naming the bound.
  Status check(std::uint64_t nbytes) const;

 private:
  // A control group that limits memory: this process's own, or one above it.
  struct Group {
    std::string limit_file, usage_file, stat_file;
    std::string inactive_key, active_key;  // page cache in stat_file: the kernel takes it back at need
  };
  void add_groups(const std::string& directory, const std::string& path, bool version2);

  const std::optional<std::uint64_t> reserve_;
  const std::string meminfo_;
  std::vector<Group> groups_;
};

}  // namespace neuron
