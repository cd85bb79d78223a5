#include "engine/device/host_memory.h"

#include <sys/stat.h>

#include <algorithm>
#include <fstream>
#include <sstream>

#include "engine/base/env.h"

namespace neuron {

namespace {

std::optional<std::string> read_file(const std::string& path) {
  std::ifstream in(path);
  if (!in) return std::nullopt;
  std::ostringstream out;
  out << in.rdbuf();
  return out.str();
}

std::optional<std::uint64_t> read_number(const std::string& path) {
  auto text = read_file(path);
  if (!text) return std::nullopt;
  while (!text->empty() && text->back() == '\n') text->pop_back();
  return parse_bytes(*text);  // nothing for "max"
}

// The number behind `key` in a file of lines "key value".
std::uint64_t number_of(const std::string& text, const std::string& key) {
  std::istringstream lines(text);
  std::string line;
  while (std::getline(lines, line)) {
    std::istringstream fields(line);
    std::string name;
    std::uint64_t value = 0;
    if (fields >> name >> value && name == key) return value;
  }
  return 0;
}

bool exists(const std::string& path) {
  struct stat unused{};
  return stat(path.c_str(), &unused) == 0;
}

std::string mebibytes(std::uint64_t nbytes) { return std::to_string(nbytes >> 20) + " MiB"; }

std::uint64_t reserve_of(std::uint64_t total, std::optional<std::uint64_t> asked) {
  const std::uint64_t usual = std::min(total / 16, std::uint64_t{4} << 30);
  const std::uint64_t least = std::min(total / 64, std::uint64_t{256} << 20);
  return std::max(asked.value_or(usual), least);
}

Status shortage(const std::string& bound, std::uint64_t nbytes, std::uint64_t available,
                std::uint64_t reserve) {
  return Status(StatusCode::kOutOfMemory,
                bound + " has " + mebibytes(available) + " left, of which " + mebibytes(reserve) +
                    " are kept in reserve (NEURON_EMU_HOST_RESERVE), too little for " + mebibytes(nbytes) +
                    " more");
}

}  // namespace

HostMemory::HostMemory(std::optional<std::uint64_t> reserve, const HostMemoryPaths& paths)
    : reserve_(reserve), meminfo_(paths.meminfo) {
  std::istringstream lines(read_file(paths.own_cgroup).value_or(""));
  std::string line;
  while (std::getline(lines, line)) {
    // "<number>:<controllers>:<path>"; version 2 has number 0 and no controllers.
    const auto first = line.find(':');
    const auto second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const std::string path = line.substr(second + 1);
    if (controllers == ",,") {
      const std::string mixed = paths.cgroup_root + "/unified";
      add_groups(exists(mixed) ? mixed : paths.cgroup_root, path, true);
    } else if (controllers.find(",memory,") != std::string::npos) {
      add_groups(paths.cgroup_root + "/memory", path, false);
    }
  }
}

void HostMemory::add_groups(const std::string& directory, const std::string& path, bool version2) {
  // In a container the path may be the host's while the mount shows the container's own group at its root;
  // then the levels that do not exist here are passed over.
  std::string level = path == "/" ? "" : path;
  for (;;) {
    const std::string base = directory + level + "/";
    Group group = version2 ? Group{base + "memory.max", base + "memory.current", base + "memory.stat",
                                   "inactive_file", "active_file"}
                           : Group{base + "memory.limit_in_bytes", base + "memory.usage_in_bytes",
                                   base + "memory.stat", "total_inactive_file", "total_active_file"};
    if (exists(group.limit_file)) groups_.push_back(std::move(group));
    if (level.empty()) return;
    level.resize(level.rfind('/') == std::string::npos ? 0 : level.rfind('/'));
  }
}

Status HostMemory::check(std::uint64_t nbytes) const {
  if (const auto text = read_file(meminfo_)) {
    const std::uint64_t total = number_of(*text, "MemTotal:") << 10;
    const std::uint64_t available = number_of(*text, "MemAvailable:") << 10;
    const std::uint64_t reserve = reserve_of(total, reserve_);
    if (total != 0 && (available < reserve || available - reserve < nbytes))
      return shortage("the host", nbytes, available, reserve);
  }
  for (const Group& group : groups_) {
    const auto limit = read_number(group.limit_file);
    const auto usage = read_number(group.usage_file);
    // Version 1 writes "no limit" as a number near 2^63.
    if (!limit || !usage || *limit >= std::uint64_t{1} << 60) continue;
    const std::string stat = read_file(group.stat_file).value_or("");
    const std::uint64_t cache = number_of(stat, group.inactive_key) + number_of(stat, group.active_key);
    const std::uint64_t used = *usage > cache ? *usage - cache : 0;
    const std::uint64_t available = *limit > used ? *limit - used : 0;
    const std::uint64_t reserve = reserve_of(*limit, reserve_);
    if (available < reserve || available - reserve < nbytes) {
      return shortage("the control group (" + group.limit_file + ")", nbytes, available, reserve);
    }
  }
  return Status::ok();
}

}  // namespace neuron
