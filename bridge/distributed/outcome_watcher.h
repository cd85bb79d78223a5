// outcome_watcher: completes Futures when works end, on a thread of its own.
//
// A Future's callbacks may need Python's global lock, which no stream's thread may wait for. The thread
// starts with the first watched work and ends with the process.
#pragma once

#include <ATen/core/ivalue.h>

#include <memory>
#include <vector>

#include "engine/collectives/work.h"

namespace neuron::bridge {

// Marks `future` (an int) completed with a c10d::WorkResult once all works have ended.
void watch_outcome(std::vector<std::shared_ptr<const Work>> works,
                   c10::intrusive_ptr<c10::ivalue::Future> future);

}  // namespace neuron::bridge
