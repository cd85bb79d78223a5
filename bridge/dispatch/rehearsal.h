// Rehearsal: a plan that was learnt from a meta function is checked before it is believed, without waiting for the
// device.
#pragma once

#include "bridge/dispatch/plan.h"

namespace neuron::bridge {

// Where the meta function may be wrong: runs the kernel once on made-up values (sample_call.h), and compares what
// it returns, or makes of the out= arguments that it resizes, with what the meta function said: some meta functions
// misstate a size or strides. Corrects the strides; a plan whose sizes are wrong, or whose kernel refuses, stops
// being asynchronous.
void rehearse(Plan& plan, const CallKey& key, Arguments arguments);

}  // namespace neuron::bridge
