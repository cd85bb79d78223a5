#include "bridge/dispatch/kernel_scope.h"

#include <ATen/Parallel.h>
#include <omp.h>

namespace neuron::bridge {

namespace {

constexpr c10::DispatchKeySet kAboveBackend =
    c10::autograd_dispatch_keyset_with_ADInplaceOrView | c10::autocast_dispatch_keyset |
    c10::functorch_transforms_ks | c10::functorch_batched_ks | c10::python_ks |
    c10::DispatchKeySet({c10::DispatchKey::PythonTLSSnapshot, c10::DispatchKey::Functionalize,
                         c10::DispatchKey::PreDispatch, c10::DispatchKey::PythonDispatcher});

}  // namespace

KernelScope::KernelScope(int threads) : exclude_(kAboveBackend) {
  // OpenMP's setting is one of the thread; a submission inline finds its own setting already there.
  if (threads > 0 && omp_get_max_threads() != threads) omp_set_num_threads(threads);
}

int intra_op_threads() { return at::get_num_threads(); }

}  // namespace neuron::bridge
