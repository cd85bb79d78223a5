#include "bridge/distributed/flight_dump.h"

#include <ATen/core/Dict.h>
#include <ATen/core/List.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/jit_type.h>
#include <torch/csrc/jit/serialization/pickler.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <utility>

#include "bridge/distributed/flight_recorder.h"
#include "bridge/distributed/live_groups.h"
#include "engine/base/clock.h"
#include "engine/base/env.h"

namespace neuron::bridge {

namespace {

using c10::IValue;
using Dict = c10::Dict<IValue, IValue>;
using List = c10::List<IValue>;

// PyTorch's FlightRecorder.hpp says it, but cannot be included: a header that it needs is not installed.
constexpr const char* kVersion = "2.10";
constexpr const char* kBackend = "xccl:";

Dict new_dict() { return Dict(c10::AnyType::get(), c10::AnyType::get()); }
List new_list() { return List(c10::AnyType::get()); }
IValue number(std::uint64_t value) { return static_cast<std::int64_t>(value); }

std::string pickled(const IValue& value) {
  std::string out;
  const auto write = [&out](const char* data, std::size_t size) { out.append(data, size); };
  torch::jit::Pickler pickler(write, nullptr, nullptr, nullptr, nullptr, /*tag_aggregates=*/false);
  pickler.protocol();
  pickler.pushIValue(value);
  pickler.stop();
  return out;
}

// What became of a call, in the recorder's words.
struct State {
  const char* name = "scheduled";
  bool completed = false;
  bool retired = false;
  std::int64_t started_ns = 0;  // steady clock; 0: not yet
  std::int64_t ended_ns = 0;
};

State state_of(const FlightRecord& record) {
  State state;
  state.completed = state.retired = true;
  for (const auto& work : record.works) {
    const bool ended = work->is_completed();
    state.retired = state.retired && ended;
    state.completed = state.completed && ended && work->status().is_ok();
    state.ended_ns = std::max(state.ended_ns, work->ended_ns());
  }
  state.started_ns = record.works.front()->started_ns();
  // A message starts when it is posted.
  if (state.started_ns == 0 && record.point_to_point) state.started_ns = record.works.front()->submitted_ns();
  if (state.completed) {
    state.name = "completed";
  } else if (state.started_ns != 0) {
    state.name = "started";
  }
  return state;
}

List sizes_of(const TensorShapes& shapes) {
  List out = new_list();
  const auto* size = shapes.sizes.begin();
  for (const std::uint32_t dimensions : shapes.dimensions) {
    List shape = new_list();
    for (std::uint32_t i = 0; i < dimensions; ++i) shape.push_back(*size++);
    out.push_back(shape);
  }
  return out;
}

List dtypes_of(const TensorShapes& shapes) {
  List out = new_list();
  for (const c10::ScalarType dtype : shapes.dtypes) out.push_back(std::string(c10::toString(dtype)));
  return out;
}

List frames_of(const PythonStack& stack) {
  List out = new_list();
  for (const PythonFrame& frame : stack) {
    Dict one = new_dict();
    one.insert("name", frame.place->function);
    one.insert("filename", frame.place->file);
    one.insert("line", static_cast<std::int64_t>(frame.line));
    out.push_back(one);
  }
  return out;
}

// What the format has no place for, and two ranks may differ in.
Dict own_fields(const FlightRecord& record) {
  const WorkSummary& summary = record.works.front()->summary();
  Dict out = new_dict();
  out.insert("name", record.works.size() == 1 ? std::string(summary.name) : record.name);
  if (summary.point_to_point) {
    out.insert("tag", number(summary.tag));
  } else {
    if (reduces(summary.kind)) out.insert("reduce_op", std::string(reduce_op_name(summary.op)));
    if (is_rooted(summary.kind)) out.insert("root", static_cast<std::int64_t>(summary.root));
  }
  return out;
}

Dict entry_of(std::uint64_t record_id, const FlightRecord& record, std::int64_t wall_offset_ns,
              bool with_stack) {
  const State state = state_of(record);
  const auto wall_time = [&](std::int64_t steady) {
    return steady == 0 ? IValue() : IValue(steady + wall_offset_ns);
  };
  std::ostringstream thread;
  thread << record.thread;
  Dict out = new_dict();
  if (with_stack) out.insert("frames", frames_of(record.stack));
  out.insert("record_id", number(record_id));
  out.insert("pg_id", record.group->id);
  out.insert("process_group", std::make_tuple(record.group->name, record.group->description));
  out.insert("thread_name", std::string(record.thread_name.data()));
  out.insert("thread_id", thread.str());
  out.insert("collective_seq_id", number(record.collective));
  out.insert("p2p_seq_id", number(record.message == 0 ? 0 : kFirstMessage + record.message));
  out.insert("op_id", record.operation);
  out.insert("profiling_name", kBackend + record.name);
  out.insert("time_created_ns", wall_time(record.works.front()->submitted_ns()));
  if (state.completed) {
    constexpr double kNanosecondsPerMillisecond = 1e6;
    out.insert("duration_ms",
               static_cast<double>(state.ended_ns - state.started_ns) / kNanosecondsPerMillisecond);
  }
  out.insert("input_sizes", sizes_of(record.inputs));
  out.insert("input_dtypes", dtypes_of(record.inputs));
  out.insert("output_sizes", sizes_of(record.outputs));
  out.insert("output_dtypes", dtypes_of(record.outputs));
  out.insert("state", std::string(state.name));
  out.insert("time_discovered_started_ns", wall_time(state.started_ns));
  out.insert("time_discovered_completed_ns", state.completed ? wall_time(state.ended_ns) : IValue());
  out.insert("retired", state.retired);
  const auto timeout = record.timeout.count() > 0 ? record.timeout : record.group->timeout;
  out.insert("timeout_ms", static_cast<std::int64_t>(timeout.count()));
  out.insert("is_p2p", record.point_to_point);
  out.insert("neuron", own_fields(record));
  return out;
}

std::string ranks_text(const std::vector<int>& ranks) {
  std::string out = "[";
  for (const int rank : ranks) out += (out.size() == 1 ? "" : ", ") + std::to_string(rank);
  return out + "]";
}

Dict groups_of(const FlightRecorder::Snapshot& snapshot) {
  Dict out = new_dict();
  for (const auto& group : snapshot.groups) {
    Dict one = new_dict();
    one.insert("name", group->name);
    one.insert("desc", group->description);
    one.insert("ranks", ranks_text(group->global_ranks));
    out.insert(group->name, one);
  }
  return out;
}

// The highest numbers of collectives among the records.
Dict progress_of(const FlightRecorder::Snapshot& snapshot) {
  struct Progress {
    std::int64_t enqueued = -1, started = -1, completed = -1;
  };
  std::vector<Progress> all(snapshot.groups.size());
  for (const FlightRecord& record : snapshot.records) {
    if (record.point_to_point) continue;
    const State state = state_of(record);
    Progress& progress = all[static_cast<std::size_t>(record.group->id)];
    const auto sequence = static_cast<std::int64_t>(record.collective);
    progress.enqueued = std::max(progress.enqueued, sequence);
    if (state.started_ns != 0) progress.started = std::max(progress.started, sequence);
    if (state.completed) progress.completed = std::max(progress.completed, sequence);
  }
  Dict out = new_dict();
  for (std::size_t id = 0; id < all.size(); ++id) {
    Dict one = new_dict();
    one.insert("last_enqueued_collective", all[id].enqueued);
    one.insert("last_started_collective", all[id].started);
    one.insert("last_completed_collective", all[id].completed);
    out.insert(std::to_string(id), one);
  }
  return out;
}

Dict own_header(const FlightRecorder::Snapshot& snapshot, const std::string& reason) {
  Dict errors = new_dict();
  for (const auto& group : snapshot.groups) {
    const auto communicator = group->communicator.lock();
    if (communicator && communicator->aborted()) errors.insert(group->name, communicator->status().message());
  }
  Dict out = new_dict();
  const std::int64_t rank = snapshot.groups.empty() ? -1 : snapshot.groups.front()->global_rank();
  out.insert("rank", rank);
  out.insert("world_size", static_cast<std::int64_t>(default_world_size()));
  out.insert("pid", static_cast<std::int64_t>(::getpid()));
  out.insert("time_ns", wall_ns());
  out.insert("reason", reason);
  out.insert("errors", errors);
  return out;
}

std::string dump_prefix() {
  for (const auto& given : {env().fr_dump_temp_file, env().nccl_debug_info_temp_file}) {
    if (given && !given->empty()) return *given;
  }
  const char* folder = std::getenv("TMPDIR");
  return std::string(folder == nullptr || *folder == '\0' ? "/tmp" : folder) + "/neuron_emu_trace_rank_";
}

}  // namespace

std::string flight_dump(const DumpOptions& options) {
  const FlightRecorder::Snapshot snapshot = FlightRecorder::get().snapshot();
  Dict out = new_dict();
  out.insert("version", std::string(kVersion));
  out.insert("pg_config", groups_of(snapshot));
  out.insert("comm_lib_version", std::string("neuron-emu"));
  out.insert("pg_status", progress_of(snapshot));
  if (options.collectives) {
    const std::int64_t wall_offset_ns = wall_ns() - steady_ns();
    List entries = new_list();
    for (std::size_t i = 0; i < snapshot.records.size(); ++i) {
      const FlightRecord& record = snapshot.records[i];
      if (options.only_active && state_of(record).completed) continue;
      entries.push_back(entry_of(snapshot.first + i, record, wall_offset_ns, options.stack_traces));
    }
    out.insert("entries", entries);
  }
  out.insert("neuron", own_header(snapshot, options.reason));
  return pickled(out);
}

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
