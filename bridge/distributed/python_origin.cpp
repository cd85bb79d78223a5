#include "bridge/distributed/python_origin.h"

#include <torch/csrc/utils/object_ptr.h>
#include <torch/csrc/utils/pybind.h>

namespace neuron::bridge {

namespace {

using FramePtr = THPPointer<PyFrameObject>;

bool is_users(const std::string& file) {
  return file.find("/torch/") == std::string::npos && !file.starts_with("<");
}

}  // namespace

std::string python_origin() {
  if (Py_IsInitialized() == 0) return {};
  pybind11::gil_scoped_acquire gil;
  PyFrameObject* innermost = PyEval_GetFrame();
  Py_XINCREF(innermost);
  for (FramePtr frame(innermost); frame.get() != nullptr; frame = FramePtr(PyFrame_GetBack(frame.get()))) {
    const auto code = pybind11::reinterpret_steal<pybind11::object>(
        reinterpret_cast<PyObject*>(PyFrame_GetCode(frame.get())));
    const auto file = code.attr("co_filename").cast<std::string>();
    if (is_users(file)) return file + ":" + std::to_string(PyFrame_GetLineNumber(frame.get()));
  }
  return {};
}

}  // namespace neuron::bridge
