// join: how a process becomes a member of a group.
#pragma once

#include <chrono>
#include <memory>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "bridge/distributed/admission.h"
#include "engine/collectives/communicator.h"

namespace neuron::bridge {

// Collective over the group's members. Admits the process, starts its core, and makes the communicator;
// returns when every member has got that far, raises on every member when one has not, at the latest after
// `timeout`. Call it without Python's global lock.
std::shared_ptr<Communicator> join_group(const GroupIdentity& group,
                                         const c10::intrusive_ptr<c10d::Store>& store,
                                         std::chrono::milliseconds timeout);

}  // namespace neuron::bridge
