// The table of environment variables, for documentation and start-up checks.
#include <torch/csrc/utils/pybind.h>

#include <cstdlib>

#include "bridge/bindings/bindings.h"
#include "engine/base/env.h"

namespace py = pybind11;

namespace neuron::bridge {

void bind_environment(py::module_& module) {
  module.def("environment_table", [] {
    py::list rows;
    for (const EnvVariable& variable : env_table()) {
      py::dict row;
      row["name"] = std::string(variable.name);
      row["type"] = std::string(variable.kind);
      row["default"] = std::string(variable.default_text);
      row["effect"] = variable.honoured ? "honoured" : "accepted";
      row["doc"] = std::string(variable.doc);
      const char* value = std::getenv(std::string(variable.name).c_str());
      row["value"] = value == nullptr ? py::object(py::none()) : py::object(py::str(value));
      rows.append(std::move(row));
    }
    return rows;
  });
  module.def("environment_errors", [] {
    std::vector<std::string> errors;
    if (!env_status().is_ok()) errors.push_back(env_status().message());
    return errors;
  });
  // One sentence each.
  module.def("unknown_variables", [] { return unknown_variables(); });
}

}  // namespace neuron::bridge
