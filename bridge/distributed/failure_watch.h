// failure_watch: writes the flight recorder's dump when a group of this process fails.
//
// A thread looks at the groups' errors every 20 ms: launchers end the survivors of a failed job within a
// tenth of a second, and a rank that computes or sleeps learns of a failure by nothing else. Each group's
// first failure writes one dump, over the previous one. The thread starts with the first group and ends with
// the process. With the recorder off nothing is watched.
#pragma once

#include <memory>
#include <string>

#include "engine/collectives/communicator.h"

namespace neuron::bridge {

void watch_for_failure(const std::shared_ptr<Communicator>& communicator);
// What the program does to a group on purpose is no failure.
void stop_watching(const Communicator& communicator);
// Looks now, for whoever is about to leave a group or to end the process; returns when the dump is written.
void look_for_failures();
// The process ends by `reason`, which its groups do not know yet: writes a dump when it is in a group that
// has not failed. The peers' calls will fail for it.
void dump_at_end(const std::string& reason);

}  // namespace neuron::bridge
