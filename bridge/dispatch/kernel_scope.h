// KernelScope: the thread state in which a CPU kernel runs on behalf of the device.
//
// Everything above the backend is excluded (Python, autograd, autocast, functorch), since the caller's
// dispatch has been through it already, and the caller's intra-op thread count holds.
#pragma once

#include <c10/core/InferenceMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

namespace neuron::bridge {

class KernelScope {
 public:
  // threads: the submitting thread's at::get_num_threads().
  explicit KernelScope(int threads);
  KernelScope(const KernelScope&) = delete;
  KernelScope& operator=(const KernelScope&) = delete;

 private:
  c10::impl::ExcludeDispatchKeyGuard exclude_;
};

// The caller's intra-op setting, to hand to a KernelScope.
int intra_op_threads();

}  // namespace neuron::bridge
