// Autocast: the lists of operators that CUDA casts, for neuron. torch.autocast(device_type="neuron") takes
// bf16 and fp16.
#include <ATen/Operators.h>
#include <ATen/autocast_mode.h>
#include <torch/library.h>

namespace neuron::bridge {

namespace {

at::Tensor banned_binary_cross_entropy(const at::Tensor& /*input*/, const at::Tensor& /*target*/,
                                       const std::optional<at::Tensor>& /*weight*/,
                                       std::int64_t /*reduction*/) {
  TORCH_CHECK(false,
              "binary_cross_entropy is unsafe to autocast: combine the sigmoid with the loss in "
              "torch.nn.functional.binary_cross_entropy_with_logits or torch.nn.BCEWithLogitsLoss");
}

TORCH_LIBRARY_IMPL(_, AutocastPrivateUse1, m) { m.fallback(torch::CppFunction::makeFallthrough()); }

}  // namespace

}  // namespace neuron::bridge

// ATen's macros name things relative to at::autocast.
namespace at::autocast {
namespace {

#define NEURON_LOWER_PRECISION(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, lower_precision_fp)
#define NEURON_FP32(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32)
#define NEURON_FP32_SET_OPT_DTYPE(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32_set_opt_dtype)
#define NEURON_PROMOTE(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, promote)

TORCH_LIBRARY_IMPL(aten, AutocastPrivateUse1, m) {
  AT_FORALL_LOWER_PRECISION_FP(NEURON_LOWER_PRECISION)
  AT_FORALL_FP32(NEURON_FP32)
  AT_FORALL_FP32_SET_OPT_DTYPE(NEURON_FP32_SET_OPT_DTYPE)
  AT_FORALL_DIFFERENT_REDISPATCH_SIGNATURE(KERNEL_DIFFERENT_REDISPATCH_SIGNATURE_PRIVATEUSEONE)
  AT_FORALL_PROMOTE(NEURON_PROMOTE)
  m.impl("binary_cross_entropy", &neuron::bridge::banned_binary_cross_entropy);
}

}  // namespace
}  // namespace at::autocast
