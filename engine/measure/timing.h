// Timing: what calls take, in microseconds, as the slowest rank sees it. Collective over the members.
#pragma once

#include <functional>
#include <vector>

#include "engine/measure/rank_member.h"

namespace neuron {

// One time for each of `calls` calls, one after the other without a barrier in between; each is that of the
// slowest rank. Requires: calls > 0.
std::vector<double> time_each(const RankMember& member, int calls, const std::function<void()>& call);

// The mean of `calls` calls, of the slowest rank: for calls that are short against reading the clock.
double time_batch(const RankMember& member, int calls, const std::function<void()>& call);

}  // namespace neuron
