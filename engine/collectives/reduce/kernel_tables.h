// The kernels of each instruction set; one source file for each, compiled with its own flags.
#pragma once

#include "engine/collectives/reduce/reduce.h"

namespace neuron {

ReduceKernel scalar_kernel(DType dtype, ReduceOp op);
ReduceKernel complex_product_kernel(DType dtype);  // of every instruction set
#if defined(__x86_64__)
ReduceKernel avx2_kernel(DType dtype, ReduceOp op);
ReduceKernel avx512_kernel(DType dtype, ReduceOp op);
#endif

}  // namespace neuron
