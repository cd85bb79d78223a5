// The sizes of a run.
#pragma once

#include <cstddef>
#include <vector>

#include "engine/measure/operation.h"
#include "engine/nccom_test/options.h"

namespace neuron::nccom_test {

// Elements of one part of the operation for each size from --minbytes to --maxbytes, increasing. A size that
// is no whole number of elements for each rank is rounded down, to one element at least.
std::vector<std::size_t> part_counts(const Options& options, Operation operation);

}  // namespace neuron::nccom_test
