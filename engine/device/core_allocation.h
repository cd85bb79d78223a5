// CoreAllocation: which logical cores this process may use, from the environment.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "engine/base/result.h"
#include "engine/device/topology.h"

namespace neuron {

// The variables that decide, as given (nothing = not set).
struct AllocationRequest {
  std::optional<std::string> visible_cores;     // NEURON_RT_VISIBLE_CORES: "4-5", "4,5", "0-3"
  std::optional<std::string> num_cores;         // NEURON_RT_NUM_CORES
  std::optional<std::string> lnc;               // NEURON_LOGICAL_NC_CONFIG, or NEURON_RT_VIRTUAL_CORE_SIZE
  std::optional<std::string> local_rank;        // LOCAL_RANK
  std::optional<std::string> local_world_size;  // LOCAL_WORLD_SIZE
};

struct CoreAllocation {
  int lnc = 2;
  std::vector<int> visible;       // logical core numbers, increasing and contiguous
  std::optional<int> local_rank;  // set together: a distributed job
  std::optional<int> local_world_size;
};

// kInvalidArgument names the variable, its value, what is allowed: malformed range ("3-1", "a", ""), core
// beyond the instance, LOCAL_RANK >= LOCAL_WORLD_SIZE, more local workers than visible cores (both numbers
// and the variable). LOCAL_RANK without LOCAL_WORLD_SIZE, or the reverse, is not an error here: the process
// group reports it, by name.
Result<CoreAllocation> allocate_cores(const InstanceType& type, const AllocationRequest& request);

}  // namespace neuron
