// Edit distance: what a mistyped name may have been meant to be.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

namespace neuron {

// Least number of letters inserted, removed, replaced, or swapped with their neighbour, to turn `a` into `b`.
std::size_t edit_distance(std::string_view a, std::string_view b);

// Those of `known` that are close to `name`: at most three, the closest first.
std::vector<std::string_view> nearest_names(std::string_view name, std::span<const std::string_view> known);

}  // namespace neuron
