// Which kernel scaled_dot_product_attention takes, and the CPU's flash kernel under the name that DTensor knows.
//
// Plain tensors take _scaled_dot_product_flash_attention_for_cpu, as on the CPU. DTensor has no rule for that
// operator, nor has context parallelism; for _scaled_dot_product_efficient_attention both have one, and it is the
// one fused operator that torch calls on any device. So a DTensor takes that name, and the kernel behind it is the
// same.
#include <ATen/Context.h>
#include <ATen/Functions.h>
#include <ATen/native/transformers/attention.h>
#include <ATen/native/transformers/sdp_utils_cpp.h>
#include <ATen/ops/_fused_sdp_choice_native.h>
#include <c10/util/Exception.h>
#include <torch/library.h>

#include "bridge/runtime/alias.h"

namespace neuron::bridge {

namespace {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;

bool present(const OptionalTensor& tensor) { return tensor.has_value() && tensor->defined(); }

// The two names stand for one kernel: who allows only the other one gets it as well.
class FlashWhereEfficientIsAllowed {
 public:
  FlashWhereEfficientIsAllowed() {
    if (before_ || !at::globalContext().userEnabledMemEfficientSDP()) return;
    at::globalContext().setSDPUseFlash(true);
  }
  ~FlashWhereEfficientIsAllowed() { at::globalContext().setSDPUseFlash(before_); }
  FlashWhereEfficientIsAllowed(const FlashWhereEfficientIsAllowed&) = delete;
  FlashWhereEfficientIsAllowed& operator=(const FlashWhereEfficientIsAllowed&) = delete;

 private:
  const bool before_ = at::globalContext().userEnabledFlashSDP();
};

// Fake tensors are wrappers, too, over meta storage: a graph that is traced with them keeps the CPU's name.
bool is_wrapper(const Tensor& tensor) {
  const auto* impl = tensor.unsafeGetTensorImpl();
  return impl->key_set().has(c10::DispatchKey::Python) &&
         !(impl->has_storage() && impl->storage().device_type() == c10::kMeta);
}

// A CPU tensor like this one, over no memory: the choice looks at nothing else, and wrappers, fake tensors and those of
// vmap have no memory. It depends on whether a gradient will be asked for.
Tensor outline(const Tensor& tensor) {
  return make_alias(nullptr, extent_bytes(tensor.sizes(), tensor.strides(), tensor.itemsize()),
                    tensor.sizes(), tensor.strides(), tensor.scalar_type())
      .set_requires_grad(tensor.requires_grad());
}

bool has_grouped_heads(const Tensor& query, const Tensor& key) {
  return query.dim() == 4 && key.dim() == 4 && query.size(1) != key.size(1);
}

// The kernel of the CPU is asked, not the operator: whatever traces this call would want to see the outlines.
std::int64_t fused_sdp_choice(const Tensor& query, const Tensor& key, const Tensor& value,
                              const OptionalTensor& mask, double dropout, bool causal,
                              std::optional<double> scale, bool grouped) {
  const OptionalTensor m = present(mask) ? OptionalTensor(outline(*mask)) : std::nullopt;
  const FlashWhereEfficientIsAllowed allowed;
  const std::int64_t choice = at::native::_fused_sdp_choice_cpp(outline(query), outline(key), outline(value),
                                                                m, dropout, causal, scale, grouped);
  if (choice != static_cast<std::int64_t>(sdp::SDPBackend::flash_attention) || !is_wrapper(query))
    return choice;
  // torch's meta function of the backward gives the gradients as many heads as the query has.
  TORCH_CHECK_NOT_IMPLEMENTED(
      !(has_grouped_heads(query, key) && at::GradMode::is_enabled() &&
        (query.requires_grad() || key.requires_grad() || value.requires_grad())),
      "scaled_dot_product_attention: DTensor has no rule for the gradients of grouped heads (enable_gqa). "
      "Repeat "
      "the heads of key and value (repeat_interleave), or call it on local tensors (to_local())");
  return static_cast<std::int64_t>(sdp::SDPBackend::efficient_attention);
}

// -> output, logsumexp (batch, heads, length), and two scalars for the seed and offset of a dropout.
std::tuple<Tensor, Tensor, Tensor, Tensor> efficient_attention(const Tensor& query, const Tensor& key,
                                                               const Tensor& value,
                                                               const OptionalTensor& bias,
                                                               bool /*compute_log_sumexp*/, double dropout,
                                                               bool causal, std::optional<double> scale) {
  auto [output, logsumexp] =
      at::_scaled_dot_product_flash_attention_for_cpu(query, key, value, dropout, causal, bias, scale);
  const Tensor none = at::zeros({}, at::kLong);
  return {output, logsumexp, none, none.clone()};
}

std::tuple<Tensor, Tensor, Tensor, Tensor> efficient_attention_backward(
    const Tensor& grad, const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& bias,
    const Tensor& output, const Tensor& logsumexp, const Tensor& /*philox_seed*/,
    const Tensor& /*philox_offset*/, double dropout, std::array<bool, 4> wanted, bool causal,
    std::optional<double> scale) {
  if (!grad.defined()) return {};
  TORCH_CHECK_NOT_IMPLEMENTED(
      !(wanted[3] && bias.defined()),
      "_scaled_dot_product_efficient_attention: the CPU's kernel has no gradient for attn_bias. Call "
      "scaled_dot_product_attention, which then takes another way");
  const OptionalTensor mask = bias.defined() ? OptionalTensor(bias) : std::nullopt;
  auto [grad_query, grad_key, grad_value] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
      grad, query, key, value, output, logsumexp, dropout, causal, mask, scale);
  return {grad_query, grad_key, grad_value, Tensor()};
}

// scaled_dot_product_attention asks the stub, not the operator.
const bool registered = [] {
  at::native::_fused_sdp_choice_stub.set_privateuse1_dispatch_ptr(&fused_sdp_choice);
  return true;
}();

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_fused_sdp_choice", &fused_sdp_choice);
  m.impl("_scaled_dot_product_efficient_attention", &efficient_attention);
  m.impl("_scaled_dot_product_efficient_attention_backward", &efficient_attention_backward);
}

}  // namespace

}  // namespace neuron::bridge
