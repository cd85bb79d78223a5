#include "engine/collectives/reduce/kernel_tables.h"
#include "engine/collectives/reduce/reduce_kernels-inl.h"

namespace neuron {

ReduceKernel avx512_kernel(DType dtype, ReduceOp op) { return select_kernel(dtype, op); }

}  // namespace neuron
