// Environment: the variables of env_vars.def as typed values.
//
// The process's values are read once, at the first call of env(). A malformed value never becomes a silent
// default: env_status() then names the variable, its value and what is allowed, and whoever starts something
// looks at it first.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/result.h"

namespace neuron {

enum class Limits : std::uint8_t { kDocumented, kStrict, kExtended };
enum class InlineChoice : std::uint8_t { kAuto, kAlways, kNever };
enum class SimdChoice : std::uint8_t { kAuto, kScalar, kAvx2, kAvx512 };
enum class LogLevel : std::uint8_t { kError, kWarn, kInfo, kDebug, kTrace };

// The C++ types of the kinds in env_vars.def.
namespace env_kind {
using Flag = bool;
using Integer = std::int64_t;
using Bytes = std::optional<std::uint64_t>;  // nothing: "auto"
using Text = std::optional<std::string>;
using Limits = neuron::Limits;
using InlineChoice = neuron::InlineChoice;
using SimdChoice = neuron::SimdChoice;
using LogLevel = neuron::LogLevel;
}  // namespace env_kind

struct Environment {
#define HONOURED(field, name, kind, default_text, doc) env_kind::kind field{};
#define ACCEPTED(name, default_text, doc)
#include "engine/base/env_vars.def"
#undef HONOURED
#undef ACCEPTED
};

// A row of the table.
struct EnvVariable {
  std::string_view name;
  std::string_view kind;          // as in env_vars.def; "Text" where it has no effect
  std::string_view default_text;  // empty: not set
  std::string_view doc;
  bool honoured;
};
std::span<const EnvVariable> env_table();

// Where a variable's value comes from: null when it is not set.
using EnvReader = std::function<const char*(const char* name)>;
struct EnvReading {
  Environment values;  // the default stands for a malformed value
  Status status;       // the first malformed value
};
EnvReading read_environment(const EnvReader& reader);

// The process's own. The reference stays valid for ever.
const Environment& env();
const Status& env_status();
// Reads again, for launchers that set variables in the program; by the device runtime, before it starts.
void reload_env();

// One sentence for each NEURON_EMU_* variable of `names` ("NAME=value" will do) that we do not know, with the
// names that it may have been meant to be.
std::vector<std::string> unknown_variables(std::span<const std::string> names);
// The same for this process's environment.
std::vector<std::string> unknown_variables();

// "512", "512M", "2G" (K, M, G, T; powers of 1024; an iB or B may follow).
std::optional<std::uint64_t> parse_bytes(std::string_view text);
std::optional<std::int64_t> parse_integer(std::string_view text);

}  // namespace neuron
