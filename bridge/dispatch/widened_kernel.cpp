#include "bridge/dispatch/widened_kernel.h"

#include <c10/util/SmallVector.h>

#include <memory>
#include <string>
#include <unordered_map>
#include <utility>

#include "bridge/dispatch/execute.h"
#include "bridge/dispatch/operators.h"
#include "bridge/dispatch/tensors_in.h"
#include "bridge/runtime/storage.h"

namespace neuron::bridge {

namespace {

// The type to compute in, or nothing when the CPU kernel takes this one.
using Widening = std::optional<at::ScalarType> (*)(at::ScalarType);

std::optional<at::ScalarType> float_for_half(at::ScalarType type) {
  if (type == at::kHalf || type == at::kBFloat16) return at::kFloat;
  return std::nullopt;
}

// Exact for counts and bounds up to 2^53.
std::optional<at::ScalarType> double_for_integers(at::ScalarType type) {
  if (at::isIntegralType(type, /*includeBool=*/false)) return at::kDouble;
  return std::nullopt;
}

Widening widening_of(const std::string& name) {
  static const std::unordered_map<std::string, Widening> kWidenings = {
      {"aten::histc", double_for_integers},
      {"aten::avg_pool3d", float_for_half},
      {"aten::avg_pool3d_backward", float_for_half},
      {"aten::_upsample_bilinear2d_aa", float_for_half},
      {"aten::_upsample_bilinear2d_aa_backward", float_for_half},
      {"aten::_upsample_bicubic2d_aa", float_for_half},
      {"aten::_upsample_bicubic2d_aa_backward", float_for_half},
      {"aten::multi_margin_loss", float_for_half},
      {"aten::multi_margin_loss_backward", float_for_half},
      {"aten::multilabel_margin_loss_forward", float_for_half},
      {"aten::multilabel_margin_loss_backward", float_for_half},
      {"aten::_standard_gamma", float_for_half},
      {"aten::_standard_gamma_grad", float_for_half},
      {"aten::_sample_dirichlet", float_for_half},
      {"aten::_dirichlet_grad", float_for_half},
      {"aten::binomial", float_for_half},
  };
  const auto found = kWidenings.find(name);
  return found == kWidenings.end() ? nullptr : found->second;
}

// One call whose tensors of a narrow type are replaced by wide copies.
class WideCall {
 public:
  WideCall(Widening widening, const OpInfo& info, const torch::jit::Stack& stack) {
    const std::size_t first = stack.size() - info.arguments.size();
    for (std::size_t i = 0; i < info.arguments.size(); ++i) {
      auto mapped = map_tensors(stack[first + i], [&](const at::Tensor& tensor) {
        return widen(widening, tensor, info.arguments[i]);
      });
      arguments_.push_back(mapped ? *std::move(mapped) : stack[first + i]);
    }
  }

  bool widens() const { return narrow_.has_value(); }
  torch::jit::Stack& arguments() { return arguments_; }

  // Rounds what the call wrote to arguments into them.
  void write_back() {
    for (const auto& [given, wide] : written_) {
      if (given.sizes() != wide.sizes()) resize_out(given, wide.sizes(), wide.strides());
      given.copy_(wide);
    }
  }

  // A written argument itself, or the result in the type that was given.
  at::Tensor narrow(const at::Tensor& result) const {
    for (const auto& [given, wide] : written_) {
      if (wide.is_same(result)) return given;
    }
    return result.defined() && result.scalar_type() == wide_ ? result.to(*narrow_) : result;
  }

 private:
  at::Tensor widen(Widening widening, const at::Tensor& tensor, const ArgumentInfo& argument) {
    if (!on_device(tensor)) return tensor;
    const auto wide_type = widening(tensor.scalar_type());
    if (!wide_type) return tensor;
    if (!narrow_) narrow_ = tensor.scalar_type();
    wide_ = *wide_type;
    at::Tensor wide = tensor.to(wide_);
    if (argument.written) written_.emplace_back(tensor, wide);
    return wide;
  }

  torch::jit::Stack arguments_;
  c10::SmallVector<std::pair<at::Tensor, at::Tensor>, 2> written_;
  std::optional<at::ScalarType> narrow_;
  at::ScalarType wide_ = at::kFloat;
};

class WidenedKernel final : public c10::OperatorKernel {
 public:
  WidenedKernel(const c10::OperatorHandle& handle, Widening widening)
      : operator_(handle), widening_(widening) {}

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
    Operator& known = operator_.get();
    WideCall call(widening_, known.info, *stack);
    if (!call.widens()) return execute(known.info, known.plans, *stack);
    op.redispatchBoxed(keys, &call.arguments());
    call.write_back();
    torch::jit::drop(*stack, known.info.arguments.size());
    for (const c10::IValue& value : call.arguments()) {
      auto mapped = map_tensors(value, [&call](const at::Tensor& tensor) { return call.narrow(tensor); });
      stack->push_back(mapped ? *std::move(mapped) : value);
    }
  }

 private:
  LazyOperator operator_;
  const Widening widening_;
};

}  // namespace

std::optional<torch::CppFunction> widened_kernel(const c10::OperatorHandle& op) {
  const Widening widening = widening_of(op.operator_name().name);
  if (widening == nullptr) return std::nullopt;
  return torch::CppFunction::makeFromBoxedFunctor(std::make_unique<WidenedKernel>(op, widening));
}

}  // namespace neuron::bridge
