// node_identity: which workers share a node, as far as the assignment of cores is concerned.
#pragma once

#include <string>

namespace neuron::bridge {

// Equal for processes of one machine (boot id), one network namespace and one launcher agent (torchrun's
// GROUP_RANK: two agents on one machine play two nodes). Never empty.
std::string node_identity();

}  // namespace neuron::bridge
