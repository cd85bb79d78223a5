// PlanCommand: one submission of a plan. Holds private aliases and copies of host scalars; never the user's
// tensors.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/stack.h>

#include <array>
#include <vector>

#include "bridge/dispatch/plan.h"
#include "engine/device/command.h"
#include "engine/device/stream.h"

namespace neuron::bridge {

class PlanCommand final : public Command {
 public:
  PlanCommand(PlanPtr plan, const CallKey& key, Arguments arguments);

  // Points the aliases to this call's tensors and takes this call's scalars.
  void load(PlanPtr plan, const CallKey& key, Arguments arguments);
  // Requires: load(). `data` is the memory of output i.
  void set_output(std::size_t index, void* data);
  // Requires: load(), an operator with a generator argument.
  void set_generator(const at::Generator& generator);
  void set_threads(int threads) { threads_ = threads; }
  void set_origin(std::string origin) { origin_ = std::move(origin); }
  std::string origin() const override { return origin_; }

  Status run(Stream& stream) override;
  void retire() noexcept override;

 private:
  void run_functional(torch::jit::Stack& stack);
  void restore_lazy_bits();

  // Set between load() and retire(); a command in the plan's own pool must not keep the plan alive.
  PlanPtr plan_;
  torch::jit::Stack arguments_;      // what the kernel gets: aliases in the place of tensors
  std::vector<at::Tensor> aliases_;  // of the tensor arguments, in the key's order
  struct LazyBits {
    std::size_t alias;
    bool conj, neg;
  };
  std::vector<LazyBits> lazy_bits_;  // of complex arguments that are written to
  std::vector<at::Tensor> outputs_;  // aliases of what we allocated
  std::vector<std::array<char, 16>> host_scalars_;
  int threads_ = 0;
  std::string origin_;
};

}  // namespace neuron::bridge
