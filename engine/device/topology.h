// Topology: the instances that can be emulated, in one table.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/result.h"

namespace neuron {

enum class Interconnect { kTorus, kSwitch };

struct InstanceType {
  std::string_view name;  // "trn2.48xlarge"
  std::string_view chip;  // "trn2"
  int chips = 0;
  int torus_rows = 0, torus_columns = 0;  // of one instance; 0 where the interconnect is a switch
  int physical_cores_per_chip = 0;
  std::size_t memory_per_chip = 0;  // bytes
  Interconnect interconnect = Interconnect::kTorus;
  int default_lnc = 2;  // physical cores in one logical core
};

// trn2.3xlarge, trn2.48xlarge, trn2u.48xlarge, trn3 (Gen1: 64 chips; Gen2: 144).
const std::vector<InstanceType>& instance_types();
// kInvalidArgument names what is allowed.
Result<const InstanceType*> find_instance_type(std::string_view name);

inline int logical_cores(const InstanceType& type, int lnc) {
  return type.chips * type.physical_cores_per_chip / lnc;
}
inline std::size_t memory_per_logical_core(const InstanceType& type, int lnc) {
  return type.memory_per_chip / static_cast<std::size_t>(type.physical_cores_per_chip) *
         static_cast<std::size_t>(lnc);
}

}  // namespace neuron
