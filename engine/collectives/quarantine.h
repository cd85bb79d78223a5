// Quarantine: blocks of a failed collective that a stopped peer may still be writing to, kept until it
// cannot.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>

namespace neuron {

// Keeps `holds` until safe() is true. safe() is asked now and then, under a lock: it must not block.
void quarantine(std::shared_ptr<const void> holds, std::function<bool()> safe);

// Lets go of what is safe by now; gives the number of holds that stay. Called when groups are made and
// destroyed.
std::size_t sweep_quarantine();

}  // namespace neuron
