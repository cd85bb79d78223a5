// The steps of nn.SyncBatchNorm, for which the CPU has no kernels: statistics of this rank, of all ranks, and
// the two halves of the backward. Written in terms of device operators.
//
// Input: (N, C, …) of any memory format, which results of its shape keep. Statistics: (C), float32 for
// float16 and bfloat16 inputs, else of the input's dtype. See torch/nn/modules/_functions.py.
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <torch/library.h>

namespace neuron::bridge {

namespace {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;

at::ScalarType statistics_dtype(const Tensor& input) {
  const auto dtype = input.scalar_type();
  return dtype == at::kHalf || dtype == at::kBFloat16 ? at::kFloat : dtype;
}

// All dimensions but the channels'.
c10::SmallVector<std::int64_t, 5> reduced_dimensions(const Tensor& input) {
  c10::SmallVector<std::int64_t, 5> dimensions;
  for (std::int64_t d = 0; d < input.dim(); ++d) {
    if (d != 1) dimensions.push_back(d);
  }
  return dimensions;
}

// (C) as (1, C, 1, …).
Tensor by_channel(const Tensor& values, const Tensor& input) {
  c10::SmallVector<std::int64_t, 5> shape(static_cast<std::size_t>(input.dim()), 1);
  shape[1] = -1;
  return values.to(statistics_dtype(input)).view(shape);
}

bool present(const OptionalTensor& tensor) { return tensor.has_value() && tensor->defined(); }

std::tuple<Tensor, Tensor> local_stats(const Tensor& input, double eps) {
  const auto [var, mean] =
      at::var_mean(input.to(statistics_dtype(input)), reduced_dimensions(input), /*correction=*/0);
  return {mean, at::rsqrt(var + eps)};
}

Tensor normalize(const Tensor& input, const OptionalTensor& weight, const OptionalTensor& bias,
                 const Tensor& mean, const Tensor& invstd, double /*eps*/) {
  Tensor result = (input.to(statistics_dtype(input)) - by_channel(mean, input)) * by_channel(invstd, input);
  if (present(weight)) result.mul_(by_channel(*weight, input));
  if (present(bias)) result.add_(by_channel(*bias, input));
  return result.to(input.scalar_type());
}

Tensor& normalize_out(const Tensor& input, const OptionalTensor& weight, const OptionalTensor& bias,
                      const Tensor& mean, const Tensor& invstd, double eps, Tensor& out) {
  const Tensor result = normalize(input, weight, bias, mean, invstd, eps);
  return out.resize_(result.sizes()).copy_(result);
}

// mean, invstd: (ranks, C); counts: (ranks).
std::tuple<Tensor, Tensor> gather_stats_with_counts(const Tensor& /*input*/, const Tensor& mean,
                                                    const Tensor& invstd, const OptionalTensor& running_mean,
                                                    const OptionalTensor& running_var, double momentum,
                                                    double eps, const Tensor& counts) {
  const Tensor weights = counts.to(mean.scalar_type()).view({-1, 1});
  const Tensor total = weights.sum();
  const Tensor all_mean = (mean * weights).sum(0) / total;
  const Tensor var = invstd.pow(-2) - eps;
  const Tensor squares = ((var + (mean - all_mean).square()) * weights).sum(0);
  if (present(running_mean)) {
    running_mean->mul_(1 - momentum).add_(all_mean.to(running_mean->scalar_type()), momentum);
  }
  if (present(running_var)) {
    running_var->mul_(1 - momentum).add_((squares / (total - 1)).to(running_var->scalar_type()), momentum);
  }
  return {all_mean, at::rsqrt(squares / total + eps)};
}

std::tuple<Tensor, Tensor> gather_stats(const Tensor& input, const Tensor& mean, const Tensor& invstd,
                                        const OptionalTensor& running_mean, const OptionalTensor& running_var,
                                        double momentum, double eps, std::int64_t count) {
  const Tensor counts = at::full({mean.size(0)}, count, mean.options());
  return gather_stats_with_counts(input, mean, invstd, running_mean, running_var, momentum, eps, counts);
}

// sum of dy, sum of dy * (x - mean), gradients of weight and bias; undefined where not asked for.
std::tuple<Tensor, Tensor, Tensor, Tensor> backward_reduce(const Tensor& grad, const Tensor& input,
                                                           const Tensor& mean, const Tensor& invstd,
                                                           const OptionalTensor& weight, bool input_g,
                                                           bool weight_g, bool bias_g) {
  const auto dtype = statistics_dtype(input);
  const auto dimensions = reduced_dimensions(input);
  const Tensor dy = grad.to(dtype);
  const Tensor sum_dy = dy.sum(dimensions);
  const Tensor sum_dy_xmu = (dy * (input.to(dtype) - by_channel(mean, input))).sum(dimensions);
  const auto out = present(weight) ? weight->scalar_type() : dtype;
  return {input_g ? sum_dy : Tensor(), input_g ? sum_dy_xmu : Tensor(),
          weight_g ? (sum_dy_xmu * invstd).to(out) : Tensor(), bias_g ? sum_dy.to(out) : Tensor()};
}

Tensor backward_elemt(const Tensor& grad, const Tensor& input, const Tensor& mean, const Tensor& invstd,
                      const OptionalTensor& weight, const Tensor& sum_dy, const Tensor& sum_dy_xmu,
                      const Tensor& count) {
  const auto dtype = statistics_dtype(input);
  const Tensor share = count.to(dtype).sum().reciprocal();
  const Tensor scale = present(weight) ? invstd * weight->to(invstd.scalar_type()) : invstd;
  const Tensor from_var = invstd.square() * sum_dy_xmu * share;
  const Tensor result = (grad.to(dtype) - by_channel(sum_dy * share, input) -
                         (input.to(dtype) - by_channel(mean, input)) * by_channel(from_var, input)) *
                        by_channel(scale, input);
  return result.to(input.scalar_type());
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("batch_norm_stats", &local_stats);
  m.impl("batch_norm_elemt", &normalize);
  m.impl("batch_norm_elemt.out", &normalize_out);
  m.impl("batch_norm_gather_stats", &gather_stats);
  m.impl("batch_norm_gather_stats_with_counts", &gather_stats_with_counts);
  m.impl("batch_norm_backward_reduce", &backward_reduce);
  m.impl("batch_norm_backward_elemt", &backward_elemt);
}

}  // namespace

}  // namespace neuron::bridge
