#include "bridge/runtime/python_unlocked.h"

#include <Python.h>

namespace neuron::bridge {

namespace {

bool holds_lock() {
  // The state first: the check alone says yes to everybody once the interpreter has ended.
  return PyGILState_GetThisThreadState() != nullptr && PyGILState_Check() == 1;
}

}  // namespace

PythonUnlocked::PythonUnlocked() : held_(holds_lock() ? PyEval_SaveThread() : nullptr) {}

PythonUnlocked::~PythonUnlocked() {
  if (held_ != nullptr) PyEval_RestoreThread(held_);
}

}  // namespace neuron::bridge
