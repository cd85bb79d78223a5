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
  ~PlanCommand() override;

  // Takes the addresses of this call's tensors, and the values that may differ between calls of one key. Writes to few
  // cache lines, and to none that run() writes to: it is the other core that has those.
  void load(const CallKey& key, Arguments arguments);
  // Requires: load(). `data` is the memory of output i.
  void set_output(std::size_t index, void* data) { data_[aliases_.size() + index] = data; }
  // Requires: load(), an operator with a generator argument.
  void set_generator(const at::Generator& generator);
  void set_threads(int threads) { threads_ = threads; }

  Status run(Stream& stream) override;
  void retire() noexcept override;

  // The pool's.
  PlanCommand* next_in_pool = nullptr;

 private:
  void bind();
  void run_functional(torch::jit::Stack& stack);
  void restore_lazy_bits();

  // What load() writes.
  int threads_ = 0;
  c10::SmallVector<void*, 6> data_;  // of the aliases, then of the outputs
  c10::SmallVector<c10::IValue, 2> varying_values_;
  std::vector<std::array<char, 16>> host_scalars_;

  // What stays, but for run().
  const PlanPtr plan_;
  const bool has_place_;                        // in the plan's pool
  std::vector<std::size_t> varying_arguments_;  // where the varying values belong
  torch::jit::Stack arguments_;                 // what the kernel gets: aliases in the place of tensors
  std::vector<at::Tensor> aliases_;             // of the tensor arguments, in the key's order
  struct LazyBits {
    std::size_t alias;
    bool conj, neg;
  };
  std::vector<LazyBits> lazy_bits_;  // of complex arguments that are written to
  std::vector<at::Tensor> outputs_;  // aliases of what we allocated
};

}  // namespace neuron::bridge
