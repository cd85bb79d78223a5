// Rules: the product's documented limits, in one table (rules.def). What passes here must mean something
// there.
//
// NEURON_EMU_LIMITS decides what breaking a rule does:
//   documented (default)  a Documented rule raises, an Unconfirmed one warns once in a process
//   strict                both raise
//   extended              neither: everything that can work works
// Each message names the rule, and the variable that lifts it. All functions are thread-safe; a warning takes
// Python's global lock for itself.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

namespace neuron::bridge {

enum class RuleId : std::uint8_t {
#define X(name, id, level, error, text, source, release, test) k##name,
#include "bridge/rules/rules.def"
#undef X
};

enum class RuleLevel : std::uint8_t { kDocumented, kUnconfirmed };

// The Python exception of a broken rule.
enum class RuleError : std::uint8_t { kNotImplemented, kRuntime, kValue, kAssertion };

struct Rule {
  const char* id;  // "subgroup-barrier"
  RuleLevel level;
  RuleError error;
  const char* text;
  const char* source;
  const char* release;
  const char* test;
};

// In the order of RuleId.
std::span<const Rule> rules();
inline const Rule& rule(RuleId id) { return rules()[static_cast<std::size_t>(id)]; }
// The rule with that id; null when there is none.
const Rule* find_rule(const std::string& id);

// NEURON_EMU_LIMITS=extended.
bool limits_lifted();

// Call it where a program has broken the rule. Raises, warns or does nothing, as NEURON_EMU_LIMITS says.
// `detail` tells what was done: "barrier on a group of 2 ranks in a world of 4".
void check_rule(RuleId id, const std::string& detail = {});

// The same for a caller that has to tell others before it raises: the message to raise, or nothing after the
// warning (if any) was given.
std::optional<std::string> rule_violation(RuleId id, const std::string& detail = {});

// Raises the Python exception of that kind.
[[noreturn]] void raise_python(RuleError error, const std::string& message);

// Gives a UserWarning for the user's line. Raises when the program's filters turn warnings into errors.
void warn_python(const std::string& message);

}  // namespace neuron::bridge
