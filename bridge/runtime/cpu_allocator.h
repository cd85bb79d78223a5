// The CPU allocator's switch: results that a CPU kernel allocates itself land in the device memory meant for
// them.
//
// In the scope of an OutputSteering, one allocation of exactly the size of an expected output takes
// that output's device memory: the first, or the one that earlier runs of the kernel have shown to be it. What
// the kernel returns is compared with what was expected afterwards, so a wrong guess (a temporary of the same
// size came first) costs a copy, never a wrong result.
#pragma once

#include <c10/util/SmallVector.h>

#include <cstddef>
#include <optional>

namespace neuron::bridge {

class OutputSteering {
 public:
  // `ordinal`: which allocation of that size it is to be, from 0. Requires: nbytes > 0.
  void expect(void* data, std::size_t nbytes, std::size_t ordinal) {
    targets_.push_back({data, nbytes, ordinal});
  }
  // How many outputs of that size are expected so far.
  std::size_t expected(std::size_t nbytes) const;
  // The memory for the next allocation of that size, or null. On the owning thread.
  void* take(std::size_t nbytes);
  // What take() had nothing for was allocated here instead.
  void note(std::size_t nbytes, const void* data);
  // Which allocation of that size gave `data`, of those that were not steered.
  std::optional<std::size_t> ordinal_of(std::size_t nbytes, const void* data) const;

 private:
  struct Target {
    void* data;
    std::size_t nbytes;
    std::size_t ordinal;
    std::size_t seen = 0;
  };
  struct Elsewhere {
    std::size_t nbytes;
    std::size_t ordinal;
    const void* data;
  };
  static constexpr std::size_t kMostNoted = 64;  // kernels that allocate in loops

  c10::SmallVector<Target, 4> targets_;
  c10::SmallVector<Elsewhere, 4> elsewhere_;
};

// While it lives, this thread's allocations are steered.
class SteeringScope {
 public:
  explicit SteeringScope(OutputSteering& steering);
  ~SteeringScope();
  SteeringScope(const SteeringScope&) = delete;
  SteeringScope& operator=(const SteeringScope&) = delete;

 private:
  OutputSteering* previous_;
};

// While it lives, this thread's allocations raise c10::OutOfMemoryError once they come to more than `bytes` in all.
class AllocationBudget {
 public:
  explicit AllocationBudget(std::size_t bytes);
  ~AllocationBudget();
  AllocationBudget(const AllocationBudget&) = delete;
  AllocationBudget& operator=(const AllocationBudget&) = delete;

  void spend(std::size_t nbytes);
  bool is_exceeded() const { return is_exceeded_; }

 private:
  std::size_t left_;
  bool is_exceeded_ = false;
  AllocationBudget* previous_;
};

// Puts the switch into torch's CPU allocator; once, when the module is loaded.
void install_cpu_allocator();

}  // namespace neuron::bridge
