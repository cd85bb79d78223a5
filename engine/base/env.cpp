#include "engine/base/env.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cctype>
#include <charconv>
#include <cstdlib>
#include <limits>
#include <utility>

#include "engine/base/edit_distance.h"

extern char** environ;

namespace neuron {

namespace {

constexpr std::array kTable{
#define HONOURED(field, name, kind, default_text, doc) EnvVariable{name, #kind, default_text, doc, true},
#define ACCEPTED(name, default_text, doc) EnvVariable{name, "Text", default_text, doc, false},
#include "engine/base/env_vars.def"
#undef HONOURED
#undef ACCEPTED
};

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

// The words of a kind, and what is allowed in one phrase.
template <typename T>
using Words = std::vector<std::pair<std::string_view, T>>;

template <typename T>
const char* parse_word(std::string_view text, const Words<T>& words, const char* allowed, T& out) {
  const std::string word = lower(text);
  for (const auto& [name, value] : words) {
    if (word == name) {
      out = value;
      return nullptr;
    }
  }
  return allowed;
}

// Each parser returns null, or what would have been allowed.
const char* parse(std::string_view text, env_kind::Flag& out) {
  static const Words<bool> words{{"1", true},  {"true", true},   {"on", true},   {"yes", true},
                                 {"0", false}, {"false", false}, {"off", false}, {"no", false}};
  return parse_word(text, words, "0 or 1", out);
}

const char* parse(std::string_view text, env_kind::Integer& out) {
  const auto value = parse_integer(text);
  if (!value) return "a whole number";
  out = *value;
  return nullptr;
}

const char* parse(std::string_view text, env_kind::Bytes& out) {
  if (lower(text) == "auto") {
    out.reset();
    return nullptr;
  }
  const auto value = parse_bytes(text);
  if (!value) return "a number of bytes such as 1073741824, 512M or 2G";
  out = *value;
  return nullptr;
}

const char* parse(std::string_view text, env_kind::Text& out) {
  out = std::string(text);
  return nullptr;
}

const char* parse(std::string_view text, Limits& out) {
  static const Words<Limits> words{
      {"documented", Limits::kDocumented}, {"strict", Limits::kStrict}, {"extended", Limits::kExtended}};
  return parse_word(text, words, "documented, strict or extended", out);
}

const char* parse(std::string_view text, InlineChoice& out) {
  static const Words<InlineChoice> words{
      {"auto", InlineChoice::kAuto}, {"always", InlineChoice::kAlways}, {"never", InlineChoice::kNever}};
  return parse_word(text, words, "auto, always or never", out);
}

const char* parse(std::string_view text, SimdChoice& out) {
  static const Words<SimdChoice> words{{"auto", SimdChoice::kAuto},
                                       {"scalar", SimdChoice::kScalar},
                                       {"avx2", SimdChoice::kAvx2},
                                       {"avx512", SimdChoice::kAvx512}};
  return parse_word(text, words, "auto, scalar, avx2 or avx512", out);
}

const char* parse(std::string_view text, LogLevel& out) {
  static const Words<LogLevel> words{{"error", LogLevel::kError},
                                     {"warn", LogLevel::kWarn},
                                     {"info", LogLevel::kInfo},
                                     {"debug", LogLevel::kDebug},
                                     {"trace", LogLevel::kTrace}};
  return parse_word(text, words, "ERROR, WARN, INFO, DEBUG or TRACE", out);
}

template <typename T>
void read_variable(const EnvReader& reader, const char* name, std::string_view default_text, T& out,
                   Status& status) {
  constexpr bool is_text = std::is_same_v<T, env_kind::Text>;
  if (!is_text || !default_text.empty()) {
    const char* wrong = parse(default_text, out);
    NEURON_CHECK(wrong == nullptr, "default of ", name, ": ", default_text);
  }
  const char* given = reader(name);
  if (given == nullptr) return;
  T value{};
  if (const char* allowed = parse(given, value)) {
    if (status.is_ok()) {
      status = Status(StatusCode::kInvalidArgument,
                      std::string(name) + "=" + given + " is not understood; allowed: " + allowed);
    }
    return;
  }
  out = std::move(value);
}

void check_range(const char* name, std::int64_t low, std::int64_t high, std::int64_t& value, Status& status) {
  if (value >= low && value <= high) return;
  if (status.is_ok()) {
    status = Status(StatusCode::kInvalidArgument, std::string(name) + "=" + std::to_string(value) +
                                                      " is not understood; allowed: " + std::to_string(low) +
                                                      " to " + std::to_string(high));
  }
  value = std::clamp(value, low, high);
}

struct ProcessEnvironment {
  EnvReading reading = read_environment([](const char* name) -> const char* { return std::getenv(name); });
};

// Replaced by reload_env(); earlier ones are kept, since references to them are out.
std::atomic<const ProcessEnvironment*>& process_environment() {
  static std::atomic<const ProcessEnvironment*> current{new ProcessEnvironment()};
  return current;
}

}  // namespace

std::span<const EnvVariable> env_table() { return kTable; }

EnvReading read_environment(const EnvReader& reader) {
  EnvReading out;
#define HONOURED(field, name, kind, default_text, doc) \
  read_variable(reader, name, default_text, out.values.field, out.status);
#define ACCEPTED(name, default_text, doc)
#include "engine/base/env_vars.def"
#undef HONOURED
#undef ACCEPTED
  check_range("NEURON_EMU_MAX_COMMANDS_AHEAD", 1, 65536, out.values.max_commands_ahead, out.status);
  check_range("TORCH_FR_BUFFER_SIZE", -1, 1'000'000, out.values.fr_buffer_size, out.status);
  check_range("TORCH_NCCL_TRACE_BUFFER_SIZE", 0, 1'000'000, out.values.nccl_trace_buffer_size, out.status);
  return out;
}

const Environment& env() { return process_environment().load(std::memory_order_acquire)->reading.values; }
const Status& env_status() { return process_environment().load(std::memory_order_acquire)->reading.status; }

void reload_env() { process_environment().store(new ProcessEnvironment(), std::memory_order_release); }

std::vector<std::string> unknown_variables(std::span<const std::string> names) {
  std::vector<std::string> out;
  for (const std::string& entry : names) {
    const std::string name = entry.substr(0, entry.find('='));
    if (!name.starts_with("NEURON_EMU_")) continue;
    std::vector<std::string_view> ours;
    for (const EnvVariable& variable : kTable) {
      if (variable.name.starts_with("NEURON_EMU_")) ours.push_back(variable.name);
    }
    if (std::find(ours.begin(), ours.end(), name) != ours.end()) continue;
    std::string text = name + " is not a variable of neuron-emu";
    const auto near = nearest_names(name, ours);
    for (std::size_t i = 0; i < near.size(); ++i) {
      text += i == 0 ? "; did you mean " : " or ";
      text += near[i];
    }
    out.push_back(text + (near.empty() ? "" : "?"));
  }
  return out;
}

std::vector<std::string> unknown_variables() {
  std::vector<std::string> names;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) names.emplace_back(*entry);
  return unknown_variables(names);
}

std::optional<std::int64_t> parse_integer(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::optional<std::uint64_t> parse_bytes(std::string_view text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc()) return std::nullopt;
  std::string unit = lower(std::string_view(end, static_cast<std::size_t>(text.data() + text.size() - end)));
  if (unit == "b") unit.clear();
  if (unit.size() == 2 && unit[1] == 'b') unit.pop_back();
  if (unit.size() == 3 && unit.ends_with("ib")) unit.resize(1);
  if (unit.empty()) return value;
  const auto power = std::string_view("kmgt").find(unit);
  if (unit.size() != 1 || power == std::string_view::npos) return std::nullopt;
  const auto shift = static_cast<unsigned>(10 * (power + 1));
  if (value > std::numeric_limits<std::uint64_t>::max() >> shift) return std::nullopt;
  return value << shift;
}

}  // namespace neuron
