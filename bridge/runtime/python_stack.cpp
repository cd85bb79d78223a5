#include "bridge/runtime/python_stack.h"

#include <torch/csrc/utils/object_ptr.h>
#include <torch/csrc/utils/pybind.h>

#include <functional>
#include <set>
#include <tuple>
#include <unordered_map>
#include <utility>

namespace neuron::bridge {

namespace {

using FramePtr = THPPointer<PyFrameObject>;
using CodePtr = THPPointer<PyCodeObject>;

// A line of a function is found by walking the function's table of lines from its start: so it is kept for
// each place that a call was made from.
struct Instruction {
  PyCodeObject* code;
  int offset;
  bool operator==(const Instruction& other) const { return code == other.code && offset == other.offset; }
};

struct InstructionHash {
  std::size_t operator()(const Instruction& at) const {
    return std::hash<const void*>{}(at.code) * 31 + static_cast<std::size_t>(at.offset);
  }
};

struct Known {
  CodePtr code;  // a reference, so that its address is nobody else's
  PythonFrame frame;
};

// Under Python's global lock. Never destroyed: the interpreter may be gone first.
struct Cache {
  std::unordered_map<Instruction, Known, InstructionHash> frames;
  std::set<std::pair<std::string, std::string>> names;
  std::unordered_map<const void*, CodePlace> places;  // by the address of the name
};

Cache& cache() {
  static auto* cache = new Cache();
  return *cache;
}

// The folder of Python's own modules, with a slash at its end.
const std::string& library_folder() {
  static const auto* folder = new std::string([] {
    const auto file = pybind11::module_::import("os").attr("__file__").cast<std::string>();
    return file.substr(0, file.rfind('/') + 1);
  }());
  return *folder;
}

bool is_pythons(const std::string& file) {
  return file.starts_with(library_folder()) && file.find("-packages/") == std::string::npos;
}

// Torch's functions are wrapped by Python's own modules, and by typing_extensions where they are deprecated.
bool is_users(const std::string& file) {
  return file.find("/torch/") == std::string::npos && !file.starts_with("<") &&
         !file.ends_with("/typing_extensions.py") && !is_pythons(file);
}

std::string text_of(PyCodeObject* code, const char* attribute) {
  return pybind11::handle(reinterpret_cast<PyObject*>(code)).attr(attribute).cast<std::string>();
}

const CodePlace* place_of(PyCodeObject* code) {
  auto name = std::pair(text_of(code, "co_filename"), text_of(code, "co_name"));
  const auto& known = *cache().names.insert(std::move(name)).first;
  const auto [place, is_new] = cache().places.try_emplace(&known);
  if (is_new) place->second = {known.first, known.second, is_users(known.first)};
  return &place->second;
}

int offset_in_code(PyFrameObject* frame) {
#if PY_VERSION_HEX >= 0x030B0000
  return PyFrame_GetLasti(frame);
#else
  return frame->f_lasti;
#endif
}

PythonFrame frame_of(PyFrameObject* frame) {
  // Programs that make code as they go must not fill the memory.
  constexpr std::size_t kMostKnown = 16384;
  CodePtr code(PyFrame_GetCode(frame));
  auto& frames = cache().frames;
  const Instruction at{code.get(), offset_in_code(frame)};
  if (const auto known = frames.find(at); known != frames.end()) return known->second.frame;
  if (frames.size() == kMostKnown) frames.clear();
  const PythonFrame found{place_of(code.get()), PyFrame_GetLineNumber(frame)};
  frames.emplace(at, Known{std::move(code), found});
  return found;
}

}  // namespace

PythonStack python_stack(StackDepth depth) {
  PythonStack stack;
  if (Py_IsInitialized() == 0) return stack;
  pybind11::gil_scoped_acquire gil;
  PyFrameObject* innermost = PyEval_GetFrame();
  Py_XINCREF(innermost);
  const std::size_t most = depth == StackDepth::kWhole ? kMostFramesOfAll : kMostFrames;
  bool found_users = false;
  for (FramePtr frame(innermost); frame.get() != nullptr; frame = FramePtr(PyFrame_GetBack(frame.get()))) {
    const PythonFrame known = frame_of(frame.get());
    const bool is_first_users = known.place->is_users && !found_users;
    found_users = found_users || is_first_users;
    // The user's line is wanted however deep it lies.
    if (stack.size() < most || is_first_users) stack.push_back(known);
    if (found_users && (depth == StackDepth::kUsersLine || stack.size() >= most)) break;
  }
  return stack;
}

std::string users_line(const PythonStack& stack) {
  for (const PythonFrame& frame : stack) {
    if (frame.place->is_users) return frame.place->file + ":" + std::to_string(frame.line);
  }
  return {};
}

}  // namespace neuron::bridge
