#include "bridge/dispatch/widened_kernel.h"

#include <c10/util/SmallVector.h>

#include <cstddef>
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

struct Widening {
  bool (*is_narrow)(at::ScalarType);  // the CPU kernel does not take it
  at::ScalarType wide;                // to compute in
};

bool is_half(at::ScalarType type) { return type == at::kHalf || type == at::kBFloat16; }
bool is_integer(at::ScalarType type) { return at::isIntegralType(type, /*includeBool=*/false); }

constexpr Widening kFloatForHalf{is_half, at::kFloat};
// Exact for counts and bounds up to 2^53.
constexpr Widening kDoubleForIntegers{is_integer, at::kDouble};

const Widening* widening_of(const std::string& name) {
  static const std::unordered_map<std::string, const Widening*> kWidenings = {
      {"aten::histc", &kDoubleForIntegers},
      {"aten::avg_pool3d", &kFloatForHalf},
      {"aten::avg_pool3d_backward", &kFloatForHalf},
      {"aten::_upsample_bilinear2d_aa", &kFloatForHalf},
      {"aten::_upsample_bilinear2d_aa_backward", &kFloatForHalf},
      {"aten::_upsample_bicubic2d_aa", &kFloatForHalf},
      {"aten::_upsample_bicubic2d_aa_backward", &kFloatForHalf},
      {"aten::multi_margin_loss", &kFloatForHalf},
      {"aten::multi_margin_loss_backward", &kFloatForHalf},
      {"aten::multilabel_margin_loss_forward", &kFloatForHalf},
      {"aten::multilabel_margin_loss_backward", &kFloatForHalf},
      {"aten::_standard_gamma", &kFloatForHalf},
      {"aten::_standard_gamma_grad", &kFloatForHalf},
      {"aten::_sample_dirichlet", &kFloatForHalf},
      {"aten::_dirichlet_grad", &kFloatForHalf},
      {"aten::binomial", &kFloatForHalf},
  };
  const auto found = kWidenings.find(name);
  return found == kWidenings.end() ? nullptr : found->second;
}

// The one narrow type of a call; nothing when it has none, or several, or the wide type as well: then the kernel has its
// own answer to types that differ.
std::optional<at::ScalarType> narrow_type(const Widening& widening, torch::jit::Stack::const_iterator first,
                                          torch::jit::Stack::const_iterator last) {
  std::optional<at::ScalarType> narrow;
  bool differ = false;
  const auto look = [&](const at::Tensor& tensor) {
    if (!on_device(tensor)) return;
    const at::ScalarType type = tensor.scalar_type();
    if (type == widening.wide) differ = true;
    if (!widening.is_narrow(type)) return;
    if (narrow && *narrow != type) differ = true;
    narrow = type;
  };
  for (; first != last; ++first) for_each_tensor(*first, look);
  return differ ? std::nullopt : narrow;
}

// One call whose tensors of the narrow type give their places to wide copies.
class WideCall {
 public:
  WideCall(at::ScalarType narrow, at::ScalarType wide) : narrow_(narrow), wide_(wide) {}

  void widen(c10::IValue& value, bool written) {
    auto mapped = map_tensors(value, [&](const at::Tensor& tensor) { return widened(tensor, written); });
    if (mapped) value = *std::move(mapped);
  }

  // Rounds what the call wrote to arguments into them.
  void write_back() {
    for (const auto& [given, wide] : written_) {
      if (given.sizes() != wide.sizes()) resize_out(given, wide.sizes(), wide.strides());
      given.copy_(wide);
    }
  }

  // Of a result: the written argument that it is, or itself in the narrow type.
  void narrow(c10::IValue& value) const {
    auto mapped = map_tensors(value, [this](const at::Tensor& tensor) { return narrowed(tensor); });
    if (mapped) value = *std::move(mapped);
  }

 private:
  at::Tensor widened(const at::Tensor& tensor, bool written) {
    if (!on_device(tensor) || tensor.scalar_type() != narrow_) return tensor;
    at::Tensor wide = tensor.to(wide_);
    if (written) written_.emplace_back(tensor, wide);
    return wide;
  }

  at::Tensor narrowed(const at::Tensor& result) const {
    for (const auto& [given, wide] : written_) {
      if (wide.is_same(result)) return given;
    }
    return result.defined() && result.scalar_type() == wide_ ? result.to(narrow_) : result;
  }

  const at::ScalarType narrow_;
  const at::ScalarType wide_;
  c10::SmallVector<std::pair<at::Tensor, at::Tensor>, 2> written_;
};

class WidenedKernel final : public c10::OperatorKernel {
 public:
  WidenedKernel(const c10::OperatorHandle& handle, const Widening& widening)
      : operator_(handle), widening_(widening) {}

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
    Operator& known = operator_.get();
    const auto& arguments = known.info.arguments;
    const std::size_t first = stack->size() - arguments.size();
    const auto narrow =
        narrow_type(widening_, stack->cbegin() + static_cast<std::ptrdiff_t>(first), stack->cend());
    if (!narrow) return execute(known.info, known.plans, *stack);
    WideCall call(*narrow, widening_.wide);
    for (std::size_t i = 0; i < arguments.size(); ++i) call.widen((*stack)[first + i], arguments[i].written);
    op.redispatchBoxed(keys, stack);
    call.write_back();
    for (std::size_t i = first; i < stack->size(); ++i) call.narrow((*stack)[i]);
  }

 private:
  LazyOperator operator_;
  const Widening& widening_;
};

}  // namespace

std::optional<torch::CppFunction> widened_kernel(const c10::OperatorHandle& op) {
  const Widening* const widening = widening_of(op.operator_name().name);
  if (widening == nullptr) return std::nullopt;
  return torch::CppFunction::makeFromBoxedFunctor(std::make_unique<WidenedKernel>(op, *widening));
}

}  // namespace neuron::bridge
