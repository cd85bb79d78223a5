// Overlap: whether a call writes to memory that another of its tensors shows, too.
#pragma once

#include "bridge/dispatch/call_key.h"

namespace neuron::bridge {

// The kernel would check this itself, but aliases hide that two tensors share a storage. True for a partial overlap
// and, unless the operator is pointwise (which takes an operand that is the result, element for element), for a full
// one: then the kernel must see the user's own tensors.
bool written_overlaps(const OpInfo& info, const CallKey& key);

}  // namespace neuron::bridge
