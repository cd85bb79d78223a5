// nccom-test: times collectives between software NeuronCores, with the options and the output of AWS's tool.
// Open options.h first.
#pragma once

#include <span>
#include <string>

namespace neuron::nccom_test {

// Exit status: 0; 1 when a rank failed or a result was wrong; 2 for options that cannot be followed.
// Requires: a process that has used no core and has no other threads.
int run_program(std::span<const std::string> arguments);

}  // namespace neuron::nccom_test
