#include <pybind11/chrono.h>
#include <torch/csrc/Exceptions.h>

#include <chrono>
#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/Types.hpp>

#include "bridge/bindings/bindings.h"
#include "bridge/distributed/ddp_options.h"
#include "bridge/distributed/failure_watch.h"
#include "bridge/distributed/flight_dump.h"
#include "bridge/distributed/flight_dump_file.h"
#include "bridge/distributed/live_groups.h"
#include "bridge/distributed/process_group_neuron.h"
#include "bridge/rules/rules.h"
#include "bridge/runtime/errors.h"
#include "bridge/runtime/python_unlocked.h"

namespace neuron::bridge {

namespace {

namespace py = pybind11;

using Options = ProcessGroupNeuron::Options;

// Leaving a group may wait for peers: the last reference is given up without Python's global lock.
template <typename T>
class UnlockedHolder {
 public:
  UnlockedHolder() = default;
  UnlockedHolder(c10::intrusive_ptr<T> pointer)
      : pointer_(std::move(pointer)) {}  // NOLINT(google-explicit-constructor)
  explicit UnlockedHolder(T* pointer) : pointer_(c10::intrusive_ptr<T>::unsafe_steal_from_new(pointer)) {}
  UnlockedHolder(const UnlockedHolder&) = default;
  UnlockedHolder(UnlockedHolder&&) noexcept = default;
  UnlockedHolder& operator=(const UnlockedHolder&) = default;
  UnlockedHolder& operator=(UnlockedHolder&&) noexcept = default;
  ~UnlockedHolder() {
    if (!pointer_) return;
    const PythonUnlocked unlocked;
    pointer_.reset();
  }
  T* get() const noexcept { return pointer_.get(); }

 private:
  c10::intrusive_ptr<T> pointer_;
};

// What the interpreter has printed as the reason of its end; empty for any other end.
std::string unhandled_exception() {
  PyObject* const value = PySys_GetObject("last_value");
  if (value == nullptr || value == Py_None) return {};
  return std::string(Py_TYPE(value)->tp_name) + ": " + py::str(value).cast<std::string>();
}

// Groups that nobody destroyed are left when the interpreter ends, before the runtime is shut down: exit
// hooks run in the reverse order of their registration, and the device's is older than any group.
void leave_groups_at_exit() {
  static const bool registered = [] {
    const py::gil_scoped_acquire gil;
    constexpr std::chrono::seconds kLimit{3};
    py::module_::import("atexit").attr("register")(py::cpp_function([kLimit] {
      const std::string exception = unhandled_exception();
      const py::gil_scoped_release unlocked;
      if (!exception.empty()) dump_at_end("this rank ended by " + exception);
      leave_all_groups(kLimit);
    }));
    return true;
  }();
  (void)registered;
}

// The creator that torch.distributed calls (extended_api). `pg_options` may be None or a Backend.Options.
UnlockedHolder<ProcessGroupNeuron> create_process_group(
    const c10d::DistributedBackendOptions& backend,
    const std::optional<c10::intrusive_ptr<c10d::Backend::Options>>& pg_options) {
  using std::chrono::milliseconds;
  auto options = c10::make_intrusive<Options>(std::chrono::duration_cast<milliseconds>(backend.timeout));
  options->group_name = backend.group_id;
  for (const auto rank : backend.global_ranks_in_group) {
    options->global_ranks_in_group.push_back(static_cast<std::uint64_t>(rank));
  }
  if (pg_options && *pg_options) options->group_desc = (*pg_options)->group_desc;
  leave_groups_at_exit();
  return c10::make_intrusive<ProcessGroupNeuron>(backend.store, backend.group_rank, backend.group_size,
                                                 std::move(options));
}

c10::intrusive_ptr<Options> copy_options(const Options& options) {
  return c10::make_intrusive<Options>(options);
}

const char* level_name(RuleLevel level) {
  return level == RuleLevel::kDocumented ? "documented" : "unconfirmed";
}

const char* error_name(RuleError error) {
  switch (error) {
    case RuleError::kNotImplemented:
      return "NotImplementedError";
    case RuleError::kValue:
      return "ValueError";
    case RuleError::kAssertion:
      return "AssertionError";
    case RuleError::kRuntime:
      break;
  }
  return "RuntimeError";
}

py::bytes flight_dump_bytes(bool collectives, bool stack_traces, bool only_active) {
  std::string bytes;
  {
    const py::gil_scoped_release unlocked;
    bytes =
        flight_dump({.collectives = collectives, .stack_traces = stack_traces, .only_active = only_active});
  }
  return bytes;
}

void write_flight_dump_file(const std::string& path, const std::string& bytes) {
  const py::gil_scoped_release unlocked;
  raise_if_error(write_flight_dump(path, bytes));
}

py::list rules_table() {
  py::list table;
  for (const Rule& rule : rules()) {
    py::dict row;
    row["id"] = rule.id;
    row["level"] = level_name(rule.level);
    row["error"] = error_name(rule.error);
    row["text"] = rule.text;
    row["source"] = rule.source;
    row["sdk_release"] = rule.release;
    row["confirmed_on_hardware"] = false;
    row["test"] = rule.test;
    table.append(row);
  }
  return table;
}

void check_rule_by_id(const std::string& id, const std::string& detail) {
  const Rule* found = find_rule(id);
  if (found == nullptr) throw py::key_error("there is no rule '" + id + "'");
  check_rule(static_cast<RuleId>(found - rules().data()), detail);
}

}  // namespace

}  // namespace neuron::bridge

PYBIND11_DECLARE_HOLDER_TYPE(T, neuron::bridge::UnlockedHolder<T>, true)

namespace neuron::bridge {

void bind_distributed(py::module_& module) {
  // c10d's own types, which ours derive from, are registered by this import.
  const auto c10d = py::module_::import("torch.distributed.distributed_c10d");
  (void)c10d;
  watch_ddp_options();

  py::class_<ProcessGroupNeuron, c10d::Backend, UnlockedHolder<ProcessGroupNeuron>> group(
      module, "ProcessGroupNeuron");
  group
      .def_property_readonly("options", [](ProcessGroupNeuron& self) { return self.getBackendOptions(); })
      // Splitting a group is local to its members here; torch asks the others to take part.
      .def("perform_nocolor_split", [](ProcessGroupNeuron&, const c10::Device&) {});
  py::class_<Options, c10d::Backend::Options, c10::intrusive_ptr<Options>>(group, "Options")
      .def(py::init([] { return c10::make_intrusive<Options>(); }))
      .def("__copy__", &copy_options)
      .def(
          "__deepcopy__", [](const Options& self, const py::dict&) { return copy_options(self); },
          py::arg("memo"));

  module.def("create_process_group", torch::wrap_pybind_function_no_gil(create_process_group),
             py::arg("backend_options"), py::arg("pg_options") = py::none());
  module.def("flight_dump", torch::wrap_pybind_function(flight_dump_bytes), py::arg("collectives"),
             py::arg("stack_traces"), py::arg("only_active"), "The flight recorder's contents, pickled.");
  module.def("flight_dump_path", torch::wrap_pybind_function_no_gil(flight_dump_path),
             "Where a failure's dump goes; empty before this process's first call in a group.");
  module.def("write_flight_dump", torch::wrap_pybind_function(write_flight_dump_file), py::arg("path"),
             py::arg("bytes"), "Replaces the file as a whole.");
  module.def("rules_table", rules_table, "The documented limits, one dict for each rule.");
  module.def("check_rule", torch::wrap_pybind_function(check_rule_by_id), py::arg("id"),
             py::arg("detail") = "",
             "Raises, warns or does nothing, as NEURON_EMU_LIMITS says for a broken rule.");
}

}  // namespace neuron::bridge
