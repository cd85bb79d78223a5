#include "engine/device/topology.h"

namespace neuron {

namespace {
constexpr std::size_t kGiB = std::size_t{1} << 30;
}

const std::vector<InstanceType>& instance_types() {
  static const std::vector<InstanceType> types{
      {"trn2.3xlarge", "trn2", 1, 1, 1, 8, 96 * kGiB, Interconnect::kTorus, 2},
      {"trn2.48xlarge", "trn2", 16, 4, 4, 8, 96 * kGiB, Interconnect::kTorus, 2},
      {"trn2u.48xlarge", "trn2", 16, 4, 4, 8, 96 * kGiB, Interconnect::kTorus, 2},
      {"trn3-gen1", "trn3", 64, 0, 0, 8, 144 * kGiB, Interconnect::kSwitch, 2},
      {"trn3-gen2", "trn3", 144, 0, 0, 8, 144 * kGiB, Interconnect::kSwitch, 2},
  };
  return types;
}

Result<const InstanceType*> find_instance_type(std::string_view name) {
  std::string allowed;
  for (const InstanceType& type : instance_types()) {
    if (type.name == name) return &type;
    allowed += (allowed.empty() ? "" : ", ") + std::string(type.name);
  }
  return Status(StatusCode::kInvalidArgument, "NEURON_EMU_INSTANCE=" + std::string(name) +
                                                  " is not an instance that we know; allowed: " + allowed);
}

}  // namespace neuron
