// DeviceRuntime: the software NeuronCores of this process. Open this header first.
//
// The runtime *starts* with the first core that is used (first allocation or command). Looking, naming,
// counting and seeding do not start it. It is leaked at exit on purpose: no destructor order games.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "engine/base/result.h"
#include "engine/device/core.h"
#include "engine/device/core_allocation.h"
#include "engine/device/topology.h"

namespace neuron {

class DeviceRuntime {
 public:
  // The process's runtime. Never fails; what is wrong with the environment is kept for status().
  static DeviceRuntime& get();

  // Ok, or why no core can be used: malformed variable, more workers than visible cores, …
  Status status() const;

  const InstanceType& instance() const;
  // Which logical cores this process may use, and which are its own.
  const CoreAllocation& allocation() const;

  // Visible logical cores; in a distributed job (LOCAL_RANK and LOCAL_WORLD_SIZE set) the number of local
  // workers. 0 when status() is bad.
  int device_count() const;
  // In a distributed job the one index that this process may use; otherwise nothing.
  std::optional<int> bound_index() const;
  // Binds the process to one index (by the process group). kInvalidArgument when another one has been
  // started.
  Status bind(int index);
  // Forgets a binding made by bind(); for a group that was destroyed.
  void unbind();

  bool started() const;                // any core was started
  bool core_started(int index) const;  // never starts
  // Starts the core at need. kInvalidArgument: "Device index N is out of range …"; kUnavailable in a forked
  // child.
  Result<Core*> core(int index);

  // Reads the environment again, for launchers that set LOCAL_RANK and the like inside the program. No effect
  // once started. References given out before stay valid.
  void reload_environment();

  // True in a child forked after start: nothing may be used there.
  bool in_bad_fork() const;

  // Bounded drain of all cores; then further commands are refused. For interpreter exit.
  void shutdown(std::chrono::milliseconds limit);

 private:
  DeviceRuntime();
  class Impl;
  Impl* impl_;
};

}  // namespace neuron
