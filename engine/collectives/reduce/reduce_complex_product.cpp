// The product of complex numbers, for all instruction sets without vectors: GCC 12 makes fused multiply-adds
// of it when it vectorizes, -ffp-contract=off or not, and these round differently.
#include "engine/collectives/reduce/kernel_tables.h"
#include "engine/collectives/reduce/reduce_kernels-inl.h"

namespace neuron {

ReduceKernel complex_product_kernel(DType dtype) {
  switch (dtype) {
    case DType::kComplex32:
      return reduce<ComplexElement<Float16Element>, ProductOp>;
    case DType::kComplex64:
      return reduce<ComplexElement<PlainElement<float>>, ProductOp>;
    case DType::kComplex128:
      return reduce<ComplexElement<PlainElement<double>>, ProductOp>;
    default:
      return nullptr;
  }
}

}  // namespace neuron
