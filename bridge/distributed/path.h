// path: on which stream a collective runs. The current stream at submission decides.
#pragma once

#include <c10/core/Device.h>

#include <optional>
#include <string>
#include <utility>

#include "bridge/rules/rules.h"
#include "engine/collectives/collective.h"
#include "engine/device/stream.h"

namespace neuron::bridge {

struct Path {
  Stream* submitting = nullptr;
  Stream* target = nullptr;  // runs the collective; the submitting one, or the default stream ("routed")
};

// Checks the rules about what HostCC carries: all-to-all raises there.
Path choose_path(CollectiveKind kind, c10::DeviceIndex device, const char* call);

// The rules about the environment of HostCC, for when a group is made: the exception and its message.
std::optional<std::pair<RuleError, std::string>> host_cc_violation();

}  // namespace neuron::bridge
