#include "bridge/rules/rules.h"

#include <c10/util/Exception.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>

#include <array>
#include <atomic>
#include <cstddef>

#include "engine/base/env.h"

namespace neuron::bridge {

namespace {

constexpr std::array kRules{
#define X(name, id, level, error, text, source, release, test) \
  Rule{id, RuleLevel::k##level, RuleError::k##error, text, source, release, test},
#include "bridge/rules/rules.def"
#undef X
};

std::array<std::atomic<bool>, kRules.size()> warned{};

// Python's AssertionError, for which c10 has no type. Torch translates it at the border, as it does its own.
struct AssertionError final : torch::PyTorchError {
  using PyTorchError::PyTorchError;
  PyObject* python_type() override { return PyExc_AssertionError; }
};

std::string message(const Rule& broken, const std::string& detail) {
  std::string text = broken.text;
  if (!detail.empty()) text += " (" + detail + ")";
  text += broken.level == RuleLevel::kDocumented ? " [documented limit '"
                                                 : " [works here, not confirmed for the product: limit '";
  text += std::string(broken.id) + "', " + broken.release + "; NEURON_EMU_LIMITS=extended lifts it]";
  return text;
}

}  // namespace

std::span<const Rule> rules() { return kRules; }

const Rule* find_rule(const std::string& id) {
  for (const Rule& candidate : kRules) {
    if (id == candidate.id) return &candidate;
  }
  return nullptr;
}

bool limits_lifted() { return env().limits == Limits::kExtended; }

std::optional<std::string> rule_violation(RuleId id, const std::string& detail) {
  if (limits_lifted()) return std::nullopt;
  const Rule& broken = rule(id);
  if (broken.level == RuleLevel::kDocumented || env().limits == Limits::kStrict)
    return message(broken, detail);
  if (!warned[static_cast<std::size_t>(id)].exchange(true, std::memory_order_relaxed)) {
    warn_python(message(broken, detail));
  }
  return std::nullopt;
}

void check_rule(RuleId id, const std::string& detail) {
  if (auto text = rule_violation(id, detail)) raise_python(rule(id).error, *text);
}

void raise_python(RuleError error, const std::string& message) {
  switch (error) {
    case RuleError::kNotImplemented:
      C10_THROW_ERROR(NotImplementedError, message);
    case RuleError::kValue:
      C10_THROW_ERROR(ValueError, message);
    case RuleError::kAssertion:
      throw AssertionError(message);
    case RuleError::kRuntime:
      break;
  }
  C10_THROW_ERROR(Error, message);
}

void warn_python(const std::string& message) {
  pybind11::gil_scoped_acquire gil;
  // Frames between here and the user: torch.distributed's function and its exception logger.
  constexpr Py_ssize_t kStackLevel = 3;
  if (PyErr_WarnEx(PyExc_UserWarning, message.c_str(), kStackLevel) != 0) throw pybind11::error_already_set();
}

}  // namespace neuron::bridge
