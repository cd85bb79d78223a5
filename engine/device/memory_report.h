// The words of an out-of-memory error.
#pragma once

#include <cstddef>
#include <string>

#include "engine/base/status.h"
#include "engine/device/block_pool.h"

namespace neuron {

// The product's line and a table: requested, allocated, reserved, total, and `bound`: what is too small.
Status out_of_memory(const std::string& core_name, std::size_t requested, const MemoryStats& stats,
                     const std::string& bound);

}  // namespace neuron
