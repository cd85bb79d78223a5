// Bare loops: the least work that moves what a collective must move, by as many threads as there are ranks.
#pragma once

#include <cstddef>
#include <vector>

#include "engine/base/dtype.h"
#include "engine/collectives/collective.h"

namespace neuron {

// The share of thread `rank` of a loop over the ranks' buffers, without any synchronization:
//   all_reduce      a = b = a + b over a 1/n of the buffers, fp32 (two ranks)
//   reduce_scatter  c = a + b over one part, fp32 (two ranks)
//   the others      a copy of what the rank must get from its peers and from itself
// `count`: elements of `dtype`, as in CollectiveRequest.
void run_bare_loop(CollectiveKind kind, DType dtype, std::size_t rank, const std::vector<std::byte*>& inputs,
                   const std::vector<std::byte*>& outputs, std::size_t count);

}  // namespace neuron
