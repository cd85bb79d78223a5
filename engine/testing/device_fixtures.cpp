#include "engine/testing/device_fixtures.h"

#include "engine/base/check.h"

namespace neuron {

std::unique_ptr<Core> make_test_core(std::size_t memory_limit) {
  CoreOptions options;
  options.memory_limit = memory_limit;
  return make_test_core(options);
}

std::unique_ptr<Core> make_test_core(const CoreOptions& options) {
  auto core = Core::create(options);
  NEURON_CHECK(core.is_ok(), core.status().message());
  return std::move(core).value();
}

InlinePolicyScope::InlinePolicyScope(InlinePolicy policy) : previous_(inline_policy()) {
  set_inline_policy(policy);
}
InlinePolicyScope::~InlinePolicyScope() { set_inline_policy(previous_); }

}  // namespace neuron
