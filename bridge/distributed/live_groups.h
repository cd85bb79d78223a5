// live_groups: the groups that this process is a member of now, and whether it ever was one.
//
// Thread-safe. At interpreter exit the groups that nobody destroyed are left from here, so that peers learn
// of it.
#pragma once

#include <chrono>
#include <memory>

#include "engine/collectives/communicator.h"

namespace neuron::bridge {

// A runtime that was started inside a group may join further groups, also after that group was destroyed.
bool was_member();
void note_joined(const std::shared_ptr<Communicator>& communicator);
// With the last group the process's binding to its core ends.
void note_left(const Communicator& communicator);

// Leaves every group; waits at most `limit` altogether for requests in flight.
void leave_all_groups(std::chrono::milliseconds limit);

// Ranks of the default group: of torch.distributed's, if that was made with this backend, else WORLD_SIZE. 0:
// unknown.
int default_world_size();
void set_default_world_size(int size);

}  // namespace neuron::bridge
