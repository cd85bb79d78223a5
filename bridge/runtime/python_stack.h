// python_stack: the Python lines behind a call into torch.
//
// Lines are kept as values and interned names: a stack may outlive the code it names, and reading one needs
// neither Python nor its global lock.
#pragma once

#include <c10/util/SmallVector.h>

#include <cstddef>
#include <string>

namespace neuron::bridge {

// Interned; lives as long as the process.
struct CodePlace {
  std::string file;
  std::string function;
  bool is_users = false;  // outside torch and what comes with Python
};

struct PythonFrame {
  const CodePlace* place = nullptr;
  int line = 0;
};

// Innermost first.
using PythonStack = c10::SmallVector<PythonFrame, 8>;

enum class StackDepth {
  kUsersLine,  // down to the innermost frame of the user
  kAll,        // the kMostFrames innermost ones, and the user's line if it lies deeper
  kWhole,      // to the outermost frame, but for recursions without end
};
inline constexpr std::size_t kMostFrames = 24;
inline constexpr std::size_t kMostFramesOfAll = 256;

// Of the calling thread; empty when it has no frame (autograd's threads). Takes Python's global lock for
// about a microsecond.
PythonStack python_stack(StackDepth depth);

// "train.py:12" of the innermost frame of the user; empty when there is none.
std::string users_line(const PythonStack& stack);

}  // namespace neuron::bridge
