// flight_dump_file: where a dump of the flight recorder goes, and how it gets there. Thread-safe.
#pragma once

#include <string>

#include "engine/base/status.h"

namespace neuron::bridge {

// Where the dump of this process goes when a group fails: the prefix that the environment gives, then the
// rank in the job. Empty before the first call of any group.
std::string flight_dump_path();

// Replaces the file as a whole: a reader, or whoever ends this process meanwhile, finds all of it or what was
// there before.
Status write_flight_dump(const std::string& path, const std::string& bytes);

}  // namespace neuron::bridge
