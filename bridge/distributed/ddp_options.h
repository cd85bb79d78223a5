// The rules about the options of DistributedDataParallel.
#pragma once

namespace neuron::bridge {

// From now on each DistributedDataParallel over a neuron group is checked when it is made; what it breaks
// raises from its constructor, or warns.
void watch_ddp_options();

}  // namespace neuron::bridge
