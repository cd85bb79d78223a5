// The CPU allocator's switch: results that a CPU kernel allocates itself land in the device memory meant for
// them.
//
// While an OutputSteering lives on a thread, an allocation of exactly the size of an expected output takes
// that output's device memory. What the kernel returns is compared with what was expected afterwards, so a
// wrong guess (a temporary of the same size came first) costs a copy, never a wrong result.
#pragma once

#include <c10/util/SmallVector.h>

#include <cstddef>

namespace neuron::bridge {

class OutputSteering {
 public:
  struct Target {
    void* data;
    std::size_t nbytes;
    bool taken = false;
  };

  OutputSteering();
  ~OutputSteering();
  OutputSteering(const OutputSteering&) = delete;
  OutputSteering& operator=(const OutputSteering&) = delete;

  // Requires: nbytes > 0.
  void expect(void* data, std::size_t nbytes) { targets_.push_back({data, nbytes}); }
  // The memory for an allocation of that size, or null. On the owning thread.
  void* take(std::size_t nbytes);

 private:
  c10::SmallVector<Target, 4> targets_;
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
