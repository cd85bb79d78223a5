// python_origin: the user's line behind a call into torch.
#pragma once

#include <string>

namespace neuron::bridge {

// "train.py:12" of the calling thread's innermost frame outside torch; empty when it has none (autograd's
// threads). Takes Python's global lock for less than a microsecond.
std::string python_origin();

}  // namespace neuron::bridge
