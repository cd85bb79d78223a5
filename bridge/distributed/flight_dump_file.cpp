#include "bridge/distributed/flight_dump_file.h"

#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "bridge/distributed/flight_recorder.h"
#include "engine/base/env.h"

namespace neuron::bridge {

namespace {

std::string dump_prefix() {
  for (const auto& given : {env().fr_dump_temp_file, env().nccl_debug_info_temp_file}) {
    if (given && !given->empty()) return *given;
  }
  const char* folder = std::getenv("TMPDIR");
  return std::string(folder == nullptr || *folder == '\0' ? "/tmp" : folder) + "/neuron_emu_trace_rank_";
}

}  // namespace

std::string flight_dump_path() {
  const FlightRecorder::Snapshot snapshot = FlightRecorder::get().snapshot();
  if (snapshot.groups.empty()) return {};
  return dump_prefix() + std::to_string(snapshot.groups.front()->global_rank());
}

Status write_flight_dump(const std::string& path, const std::string& bytes) {
  const auto failed = [&path](const std::string& why) {
    return Status(StatusCode::kUnavailable, "the flight recorder cannot write " + path + ": " + why);
  };
  std::error_code error;
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  if (!folder.empty()) std::filesystem::create_directories(folder, error);
  // A name that no analyzer takes for a rank's, should this process be ended; not guessable, since /tmp is
  // everybody's.
  std::string temporary = (folder / ".flight_dump.XXXXXX").string();
  const int fd = ::mkstemp(temporary.data());
  if (fd < 0) return failed(std::generic_category().message(errno));
  std::size_t written = 0;
  while (written < bytes.size()) {
    const ssize_t step = ::write(fd, bytes.data() + written, bytes.size() - written);
    if (step < 0 && errno == EINTR) continue;
    if (step <= 0) break;
    written += static_cast<std::size_t>(step);
  }
  const int write_error = errno;
  ::close(fd);
  if (written == bytes.size() && ::rename(temporary.c_str(), path.c_str()) == 0) return Status::ok();
  const int shown = written == bytes.size() ? errno : write_error;
  ::unlink(temporary.c_str());
  return failed(std::generic_category().message(shown));
}

}  // namespace neuron::bridge
