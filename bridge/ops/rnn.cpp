// Fused LSTM and GRU cells: torch takes them for every accelerator, and the CPU has no kernel for them.
// Written in terms of device operators; the workspace holds what the backward needs.
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <torch/library.h>

namespace neuron::bridge {

namespace {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;

Tensor with_bias(const Tensor& gates, const OptionalTensor& bias) {
  return bias.has_value() && bias->defined() ? gates + *bias : gates;
}

Tensor or_zeros(const OptionalTensor& gradient, const Tensor& like) {
  return gradient.has_value() && gradient->defined() ? *gradient : at::zeros_like(like);
}

// workspace: (batch, 4 * hidden) = input, forget, cell, output gates after their activations.
std::tuple<Tensor, Tensor, Tensor> lstm_cell(const Tensor& input_gates, const Tensor& hidden_gates,
                                             const Tensor& cx, const OptionalTensor& input_bias,
                                             const OptionalTensor& hidden_bias) {
  const Tensor gates = with_bias(input_gates, input_bias) + with_bias(hidden_gates, hidden_bias);
  const auto parts = gates.chunk(4, 1);
  const Tensor i = parts[0].sigmoid(), f = parts[1].sigmoid(), g = parts[2].tanh(), o = parts[3].sigmoid();
  const Tensor cy = f * cx + i * g;
  return {o * cy.tanh(), cy, at::cat({i, f, g, o}, 1)};
}

std::tuple<Tensor, Tensor, Tensor> lstm_cell_backward(const OptionalTensor& grad_hy,
                                                      const OptionalTensor& grad_cy, const Tensor& cx,
                                                      const Tensor& cy, const Tensor& workspace,
                                                      bool has_bias) {
  const auto parts = workspace.chunk(4, 1);
  const Tensor &i = parts[0], &f = parts[1], &g = parts[2], &o = parts[3];
  const Tensor gh = or_zeros(grad_hy, cy), tanh_cy = cy.tanh();
  const Tensor gc = or_zeros(grad_cy, cy) + gh * o * (1 - tanh_cy * tanh_cy);
  const Tensor gates = at::cat(
      {gc * g * i * (1 - i), gc * cx * f * (1 - f), gc * i * (1 - g * g), gh * tanh_cy * o * (1 - o)}, 1);
  return {gates, gc * f, has_bias ? gates.sum(0) : Tensor()};
}

// workspace: (batch, 5 * hidden) = reset, update, new gates after their activations, hx, the new gate's
// hidden part.
std::tuple<Tensor, Tensor> gru_cell(const Tensor& input_gates, const Tensor& hidden_gates, const Tensor& hx,
                                    const OptionalTensor& input_bias, const OptionalTensor& hidden_bias) {
  const auto in = with_bias(input_gates, input_bias).chunk(3, 1);
  const auto hidden = with_bias(hidden_gates, hidden_bias).chunk(3, 1);
  const Tensor r = (in[0] + hidden[0]).sigmoid(), z = (in[1] + hidden[1]).sigmoid();
  const Tensor n = (in[2] + r * hidden[2]).tanh();
  return {n + z * (hx - n), at::cat({r, z, n, hx, hidden[2]}, 1)};
}

std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> gru_cell_backward(const Tensor& grad_hy,
                                                                     const Tensor& workspace, bool has_bias) {
  const auto parts = workspace.chunk(5, 1);
  const Tensor &r = parts[0], &z = parts[1], &n = parts[2], &hx = parts[3], &hn = parts[4];
  const Tensor new_gate = grad_hy * (1 - z) * (1 - n * n);
  const Tensor update = grad_hy * (hx - n) * z * (1 - z);
  const Tensor reset = new_gate * hn * r * (1 - r);
  const Tensor input = at::cat({reset, update, new_gate}, 1);
  const Tensor hidden = at::cat({reset, update, new_gate * r}, 1);
  return {input, hidden, grad_hy * z, has_bias ? input.sum(0) : Tensor(),
          has_bias ? hidden.sum(0) : Tensor()};
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_thnn_fused_lstm_cell", &lstm_cell);
  m.impl("_thnn_fused_lstm_cell_backward_impl", &lstm_cell_backward);
  m.impl("_thnn_fused_gru_cell", &gru_cell);
  m.impl("_thnn_fused_gru_cell_backward", &gru_cell_backward);
}

}  // namespace

}  // namespace neuron::bridge
