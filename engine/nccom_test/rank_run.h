// What one rank does in a run.
#pragma once

#include "engine/collectives/bootstrap.h"
#include "engine/nccom_test/options.h"

namespace neuron::nccom_test {

// Runs all operations at all sizes; rank 0 prints the tables and keeps the JSON file up to date, row by row.
// False when a result was wrong. Throws RankFailure.
bool run_operations(const Options& options, int rank, Bootstrap& bootstrap);

// kInvalidArgument when the file cannot be written. Nothing without a file.
Status write_json(const Options& options, const std::string& text);

}  // namespace neuron::nccom_test
