#include "engine/base/edit_distance.h"

#include <algorithm>
#include <utility>

namespace neuron {

std::size_t edit_distance(std::string_view a, std::string_view b) {
  const std::size_t width = b.size() + 1;
  std::vector<std::size_t> rows((a.size() + 1) * width);
  const auto at = [&](std::size_t i, std::size_t j) -> std::size_t& { return rows[i * width + j]; };
  for (std::size_t i = 0; i <= a.size(); ++i) at(i, 0) = i;
  for (std::size_t j = 0; j <= b.size(); ++j) at(0, j) = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = at(i - 1, j - 1) + (a[i - 1] == b[j - 1] ? 0 : 1);
      at(i, j) = std::min({at(i - 1, j) + 1, at(i, j - 1) + 1, replaced});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        at(i, j) = std::min(at(i, j), at(i - 2, j - 2) + 1);
      }
    }
  }
  return at(a.size(), b.size());
}

std::vector<std::string_view> nearest_names(std::string_view name, std::span<const std::string_view> known) {
  constexpr std::size_t kMostNames = 3;
  constexpr std::size_t kFarthest = 6;
  std::vector<std::pair<std::size_t, std::string_view>> found;
  for (std::string_view candidate : known) {
    const std::size_t distance = edit_distance(name, candidate);
    if (distance <= kFarthest) found.emplace_back(distance, candidate);
  }
  std::sort(found.begin(), found.end());
  std::vector<std::string_view> out;
  for (const auto& [distance, candidate] : found) {
    // Far ones only help where nothing is near.
    if (out.size() < kMostNames && distance <= found.front().first + 1) out.push_back(candidate);
  }
  return out;
}

}  // namespace neuron
