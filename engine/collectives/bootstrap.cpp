#include "engine/collectives/bootstrap.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <thread>
#include <utility>

namespace neuron {

namespace {

Status no_key(std::string_view key) {
  return Status(StatusCode::kTimeout, "no member of the group has set '" + std::string(key) + "' in time");
}

Status file_error(const char* call, const std::string& path) {
  return Status(StatusCode::kInternal,
                std::string(call) + " of " + path + " failed: " + std::strerror(errno));
}

}  // namespace

Status LocalBootstrap::set(std::string_view key, std::string_view bytes) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    values_.insert_or_assign(std::string(key), std::string(bytes));
  }
  changed_.notify_all();
  return Status::ok();
}

Result<std::string> LocalBootstrap::get(std::string_view key, Deadline deadline) {
  std::unique_lock<std::mutex> lock(mutex_);
  for (;;) {
    if (const auto found = values_.find(key); found != values_.end()) return found->second;
    if (deadline.is_never()) {
      changed_.wait(lock);
    } else if (changed_.wait_until(lock, deadline.when()) == std::cv_status::timeout) {
      const auto found = values_.find(key);
      if (found != values_.end()) return found->second;
      return no_key(key);
    }
  }
}

DirectoryBootstrap::DirectoryBootstrap(std::string directory) : directory_(std::move(directory)) {}

// Keys hold slashes and whatever a group's name has: spelled in hexadecimal.
std::string DirectoryBootstrap::path_of(std::string_view key) const {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string path = directory_ + "/key-";
  for (const char c : key) {
    const auto byte = static_cast<unsigned char>(c);
    path += kDigits[byte >> 4];
    path += kDigits[byte & 15];
  }
  return path;
}

Status DirectoryBootstrap::set(std::string_view key, std::string_view bytes) {
  const std::string path = path_of(key);
  const std::string draft = path + "." + std::to_string(getpid());
  std::FILE* file = std::fopen(draft.c_str(), "wbe");
  if (file == nullptr) return file_error("open", draft);
  const bool written = std::fwrite(bytes.data(), 1, bytes.size(), file) == bytes.size();
  if (std::fclose(file) != 0 || !written) return file_error("write", draft);
  if (std::rename(draft.c_str(), path.c_str()) != 0) return file_error("rename", draft);
  return Status::ok();
}

Result<std::string> DirectoryBootstrap::get(std::string_view key, Deadline deadline) {
  const std::string path = path_of(key);
  for (;;) {
    if (std::FILE* file = std::fopen(path.c_str(), "rbe")) {
      std::string bytes;
      char buffer[4096];
      while (const std::size_t n = std::fread(buffer, 1, sizeof buffer, file)) bytes.append(buffer, n);
      std::fclose(file);
      return bytes;
    }
    if (errno != ENOENT) return file_error("open", path);
    if (deadline.passed()) return no_key(key);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

}  // namespace neuron
