#include "bridge/distributed/flight_dump.h"

#include <unistd.h>

#include <algorithm>
#include <map>
#include <sstream>
#include <utility>

#include "bridge/distributed/flight_recorder.h"
#include "bridge/distributed/live_groups.h"
#include "bridge/distributed/pickle_writer.h"
#include "engine/base/clock.h"

namespace neuron::bridge {

namespace {

// PyTorch's FlightRecorder.hpp says it, but cannot be included: a header that it needs is not installed.
constexpr const char* kVersion = "2.10";
constexpr const char* kBackend = "xccl:";

std::int64_t number(std::uint64_t value) { return static_cast<std::int64_t>(value); }

// The analyzer knows the coalesced form of lists under another name than the profiler.
std::string analyzer_name(const std::string& name) {
  return name == "all_gather_coalesced" ? "ALLGATHER_coalesced" : name;
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

// Writes the entries of one dump.
class EntryWriter {
 public:
  EntryWriter(PickleWriter& out, bool with_stacks) : out_(out), with_stacks_(with_stacks) {}
  void write(std::uint64_t record_id, const FlightRecord& record);

 private:
  void sizes(const char* key, const TensorShapes& shapes);
  void dtypes(const char* key, const TensorShapes& shapes);
  void frames(const PythonStack& stack);
  void own_fields(const FlightRecord& record);
  void wall_time(const char* key, std::int64_t steady_ns);  // None for 0

  using StackKey = std::vector<std::pair<const CodePlace*, int>>;

  PickleWriter& out_;
  const bool with_stacks_;
  const std::int64_t wall_offset_ns_ = wall_ns() - steady_ns();
  // Programs call from few places: each stack is written once.
  std::map<StackKey, std::uint32_t> stacks_;
};

void EntryWriter::sizes(const char* key, const TensorShapes& shapes) {
  out_.text(key);
  out_.begin_list();
  const auto* size = shapes.sizes.begin();
  for (const std::uint32_t dimensions : shapes.dimensions) {
    out_.begin_list();
    for (std::uint32_t i = 0; i < dimensions; ++i) out_.integer(*size++);
    out_.end_list();
  }
  out_.end_list();
}

void EntryWriter::dtypes(const char* key, const TensorShapes& shapes) {
  out_.text(key);
  out_.begin_list();
  for (const c10::ScalarType dtype : shapes.dtypes) out_.text(c10::toString(dtype));
  out_.end_list();
}

void EntryWriter::frames(const PythonStack& stack) {
  out_.text("frames");
  StackKey key;
  for (const PythonFrame& frame : stack) key.emplace_back(frame.place, frame.line);
  if (const auto known = stacks_.find(key); known != stacks_.end()) return out_.refer(known->second);
  out_.begin_list();
  for (const PythonFrame& frame : stack) {
    out_.begin_dict();
    out_.item("name", frame.place->function);
    out_.item("filename", frame.place->file);
    out_.item("line", std::int64_t{frame.line});
    out_.end_dict();
  }
  out_.end_list();
  stacks_.emplace(std::move(key), out_.name());
}

// What the format has no place for, and two ranks may differ in.
void EntryWriter::own_fields(const FlightRecord& record) {
  const WorkSummary& summary = record.works.front()->summary();
  out_.text("neuron");
  out_.begin_dict();
  out_.item("name", record.works.size() == 1 ? std::string_view(summary.name) : record.name);
  if (summary.point_to_point) {
    out_.item("tag", number(summary.tag));
  } else {
    if (reduces(summary.kind)) out_.item("reduce_op", reduce_op_name(summary.op));
    if (is_rooted(summary.kind)) out_.item("root", std::int64_t{summary.root});
  }
  out_.end_dict();
}

void EntryWriter::wall_time(const char* key, std::int64_t steady_ns) {
  if (steady_ns != 0) return out_.item(key, steady_ns + wall_offset_ns_);
  out_.text(key);
  out_.none();
}

void EntryWriter::write(std::uint64_t record_id, const FlightRecord& record) {
  const State state = state_of(record);
  out_.begin_dict();
  if (with_stacks_) frames(record.stack);
  out_.item("record_id", number(record_id));
  out_.item("pg_id", record.group->id);
  out_.text("process_group");
  out_.begin_tuple();
  out_.text(record.group->name);
  out_.text(record.group->description);
  out_.end_tuple();
  std::ostringstream thread;
  thread << record.thread;
  out_.item("thread_name", record.thread_name.data());
  out_.item("thread_id", thread.str());
  out_.item("collective_seq_id", number(record.collective));
  out_.item("p2p_seq_id", number(record.message == 0 ? 0 : kFirstMessage + record.message));
  out_.item("op_id", record.operation);
  out_.item("profiling_name", kBackend + analyzer_name(record.name));
  wall_time("time_created_ns", record.works.front()->submitted_ns());
  if (state.completed) {
    constexpr double kNanosecondsPerMillisecond = 1e6;
    out_.text("duration_ms");
    out_.real(static_cast<double>(state.ended_ns - state.started_ns) / kNanosecondsPerMillisecond);
  }
  sizes("input_sizes", record.inputs);
  dtypes("input_dtypes", record.inputs);
  sizes("output_sizes", record.outputs);
  dtypes("output_dtypes", record.outputs);
  out_.item("state", state.name);
  wall_time("time_discovered_started_ns", state.started_ns);
  wall_time("time_discovered_completed_ns", state.completed ? state.ended_ns : 0);
  out_.item("retired", state.retired);
  const auto timeout = record.timeout.count() > 0 ? record.timeout : record.group->timeout;
  out_.item("timeout_ms", static_cast<std::int64_t>(timeout.count()));
  out_.item("is_p2p", record.point_to_point);
  own_fields(record);
  out_.end_dict();
}

std::string ranks_text(const std::vector<int>& ranks) {
  std::string out = "[";
  for (const int rank : ranks) out += (out.size() == 1 ? "" : ", ") + std::to_string(rank);
  return out + "]";
}

void write_groups(PickleWriter& out, const FlightRecorder::Snapshot& snapshot) {
  out.text("pg_config");
  out.begin_dict();
  for (const auto& group : snapshot.groups) {
    out.text(group->name);
    out.begin_dict();
    out.item("name", group->name);
    out.item("desc", group->description);
    out.item("ranks", ranks_text(group->global_ranks));
    out.end_dict();
  }
  out.end_dict();
}

// The highest numbers of collectives among the records.
void write_progress(PickleWriter& out, const FlightRecorder::Snapshot& snapshot) {
  struct Progress {
    std::int64_t enqueued = -1, started = -1, completed = -1;
  };
  std::vector<Progress> all(snapshot.groups.size());
  for (const FlightRecord& record : snapshot.records) {
    if (record.point_to_point) continue;
    const State state = state_of(record);
    Progress& progress = all[static_cast<std::size_t>(record.group->id)];
    const std::int64_t sequence = number(record.collective);
    progress.enqueued = std::max(progress.enqueued, sequence);
    if (state.started_ns != 0) progress.started = std::max(progress.started, sequence);
    if (state.completed) progress.completed = std::max(progress.completed, sequence);
  }
  out.text("pg_status");
  out.begin_dict();
  for (std::size_t id = 0; id < all.size(); ++id) {
    out.text(std::to_string(id));
    out.begin_dict();
    out.item("last_enqueued_collective", all[id].enqueued);
    out.item("last_started_collective", all[id].started);
    out.item("last_completed_collective", all[id].completed);
    out.end_dict();
  }
  out.end_dict();
}

void write_header(PickleWriter& out, const FlightRecorder::Snapshot& snapshot, const std::string& reason) {
  out.text("neuron");
  out.begin_dict();
  out.item("rank", std::int64_t{snapshot.groups.empty() ? -1 : snapshot.groups.front()->global_rank()});
  out.item("world_size", std::int64_t{default_world_size()});
  out.item("pid", std::int64_t{::getpid()});
  out.item("time_ns", wall_ns());
  out.item("reason", reason);
  out.text("errors");
  out.begin_dict();
  for (const auto& group : snapshot.groups) {
    const auto communicator = group->communicator.lock();
    if (communicator && communicator->aborted()) out.item(group->name, communicator->status().message());
  }
  out.end_dict();
  out.end_dict();
}

}  // namespace

std::string flight_dump(const DumpOptions& options) {
  const FlightRecorder::Snapshot snapshot = FlightRecorder::get().snapshot();
  PickleWriter out;
  out.begin_dict();
  out.item("version", kVersion);
  write_groups(out, snapshot);
  out.item("comm_lib_version", "neuron-emu");
  write_progress(out, snapshot);
  if (options.collectives) {
    out.text("entries");
    out.begin_list();
    EntryWriter entries(out, options.stack_traces);
    for (std::size_t i = 0; i < snapshot.records.size(); ++i) {
      const FlightRecord& record = snapshot.records[i];
      if (options.only_active && state_of(record).completed) continue;
      entries.write(snapshot.first + i, record);
    }
    out.end_list();
  }
  write_header(out, snapshot, options.reason);
  out.end_dict();
  return out.finish();
}

}  // namespace neuron::bridge
