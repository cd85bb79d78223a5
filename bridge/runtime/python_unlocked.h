// PythonUnlocked: without Python's global lock for a scope that may wait for a stream.
#pragma once

// PyThreadState, without Python's header.
struct _ts;

namespace neuron::bridge {

// Torch lets go of the lock before most operators, but not before torch.Event's record and wait or a storage's
// resize. These wait, too, when a stream has no room for a command, perhaps for one that another thread of the
// program has to run first. So whoever is called with the lock and may wait opens such a scope, before it takes any
// lock of ours. A thread that does not hold Python's lock passes through. The scope ends with the lock taken again.
class PythonUnlocked {
 public:
  PythonUnlocked();
  ~PythonUnlocked();
  PythonUnlocked(const PythonUnlocked&) = delete;
  PythonUnlocked& operator=(const PythonUnlocked&) = delete;

 private:
  _ts* const held_;  // null: this thread did not hold the lock
};

}  // namespace neuron::bridge
