"""Modules and their functions, forward and backward, against the CPU."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from comparison import Twins, assert_matches_cpu, assert_same
from torch import nn
from torch._subclasses import FakeTensorMode
from torch.nn.attention import SDPBackend, sdpa_kernel

from neuron_emu import _C

_GENERATOR = torch.Generator().manual_seed(11)


def rand(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=_GENERATOR)


def ints(*shape: int, high: int) -> torch.Tensor:
    return torch.randint(0, high, shape, generator=_GENERATOR)


def first_tensor(value: Any) -> torch.Tensor:
    while not isinstance(value, torch.Tensor):
        value = value[0]
    return value


def check_module(make: Callable[[], nn.Module], *inputs: Any) -> None:
    """Outputs, gradients of inputs and parameters, and buffers, over two steps."""
    torch.manual_seed(0)
    on_cpu = make()
    on_device = copy.deepcopy(on_cpu).to("neuron")
    for step in range(2):
        results, gradients = [], []
        for module, device in ((on_cpu, "cpu"), (on_device, "neuron")):
            arguments = Twins(device).of(inputs)
            leaves = [a for a in arguments if isinstance(a, torch.Tensor) and a.is_floating_point()]
            for leaf in leaves:
                leaf.requires_grad_()
            module.zero_grad()
            result = module(*arguments)
            first_tensor(result).square().sum().backward()
            results.append(result)
            parameters = {name: parameter.grad for name, parameter in module.named_parameters()}
            gradients.append({"inputs": [leaf.grad for leaf in leaves], "parameters": parameters})
        assert_same(results[1], results[0], exact=False, strides=False, where=f"output of step {step}")
        assert_same(gradients[1], gradients[0], exact=False, strides=False, where=f"gradients of step {step}")
        assert_same(dict(on_device.named_buffers()), dict(on_cpu.named_buffers()), exact=False, where="buffers")


MODULES: dict[str, tuple[Any, ...]] = {
    "linear": (lambda: nn.Linear(5, 3), rand(4, 5)),
    "linear_3d_no_bias": (lambda: nn.Linear(5, 3, bias=False), rand(2, 4, 5)),
    "bilinear": (lambda: nn.Bilinear(4, 5, 3), rand(2, 4), rand(2, 5)),
    "conv1d": (lambda: nn.Conv1d(3, 4, 3, padding=1), rand(2, 3, 9)),
    "conv2d": (lambda: nn.Conv2d(3, 4, 3, stride=2, padding=1), rand(2, 3, 8, 8)),
    "conv2d_groups": (lambda: nn.Conv2d(4, 8, 3, groups=4, bias=False), rand(2, 4, 8, 8)),
    "conv2d_dilated": (lambda: nn.Conv2d(3, 4, 3, dilation=2), rand(2, 3, 9, 9)),
    "conv2d_unbatched": (lambda: nn.Conv2d(3, 4, 3, padding="same"), rand(3, 8, 8)),
    "conv2d_channels_last": (
        lambda: nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last),
        rand(2, 3, 8, 8).to(memory_format=torch.channels_last),
    ),
    "conv3d": (lambda: nn.Conv3d(2, 3, 2), rand(1, 2, 4, 4, 4)),
    "conv_transpose2d": (lambda: nn.ConvTranspose2d(3, 4, 3, stride=2, output_padding=1), rand(2, 3, 5, 5)),
    "batch_norm": (lambda: nn.BatchNorm2d(3), rand(4, 3, 5, 5)),
    "batch_norm_eval": (lambda: nn.BatchNorm1d(3).eval(), rand(4, 3)),
    "layer_norm": (lambda: nn.LayerNorm(6), rand(4, 6)),
    "rms_norm": (lambda: nn.RMSNorm(6), rand(4, 6)),
    "group_norm": (lambda: nn.GroupNorm(2, 4), rand(2, 4, 5)),
    "instance_norm": (lambda: nn.InstanceNorm2d(3, affine=True), rand(2, 3, 4, 4)),
    "local_response": (lambda: nn.LocalResponseNorm(2), rand(2, 4, 5)),
    "max_pool": (lambda: nn.MaxPool2d(2), rand(2, 3, 8, 8)),
    "avg_pool": (lambda: nn.AvgPool2d(3, 2, 1), rand(2, 3, 8, 8)),
    "adaptive_pool": (lambda: nn.AdaptiveAvgPool2d((1, 1)), rand(2, 3, 8, 8)),
    "upsample": (lambda: nn.Upsample(scale_factor=2, mode="bilinear"), rand(1, 2, 4, 4)),
    "upsample_nearest": (lambda: nn.Upsample(scale_factor=2), rand(1, 2, 4, 4)),
    "pixel_shuffle": (lambda: nn.PixelShuffle(2), rand(1, 8, 3, 3)),
    "activations": (
        lambda: nn.Sequential(nn.ReLU(), nn.GELU(), nn.SiLU(), nn.LeakyReLU(), nn.ELU(), nn.Mish(), nn.Softplus()),
        rand(4, 6),
    ),
    "gated": (lambda: nn.Sequential(nn.GLU(), nn.Hardtanh(), nn.Softsign(), nn.Tanh(), nn.LogSigmoid()), rand(4, 6)),
    "gelu_tanh": (lambda: nn.GELU(approximate="tanh"), rand(4, 6)),
    "prelu": (lambda: nn.PReLU(6), rand(4, 6)),
    "softmax": (lambda: nn.Sequential(nn.Softmax(-1), nn.LogSoftmax(0)), rand(4, 6)),
    "embedding": (lambda: nn.Embedding(9, 4, padding_idx=1), ints(3, 5, high=9)),
    "embedding_bag": (lambda: nn.EmbeddingBag(9, 4, mode="sum"), ints(3, 5, high=9)),
    "lstm": (lambda: nn.LSTM(4, 5, num_layers=2, batch_first=True), rand(2, 6, 4)),
    "lstm_bidirectional": (lambda: nn.LSTM(4, 5, bidirectional=True), rand(6, 2, 4)),
    "gru": (lambda: nn.GRU(4, 5), rand(6, 2, 4)),
    "rnn_tanh": (lambda: nn.RNN(4, 5), rand(6, 2, 4)),
    "lstm_cell": (lambda: nn.LSTMCell(4, 5), rand(2, 4)),
    "multihead_attention": (lambda: nn.MultiheadAttention(8, 2, batch_first=True), *[rand(2, 5, 8)] * 3),
    "encoder_layer": (lambda: nn.TransformerEncoderLayer(8, 2, 16, dropout=0, batch_first=True), rand(2, 5, 8)),
    "unfold_fold": (lambda: nn.Sequential(nn.Unfold(2), nn.Fold((4, 4), 2)), rand(1, 2, 4, 4)),
    "zero_pad": (
        lambda: nn.Sequential(nn.ZeroPad2d(1), nn.ReflectionPad2d(1), nn.ReplicationPad2d(1)),
        rand(1, 2, 4, 4),
    ),
    "cosine": (lambda: nn.CosineSimilarity(), rand(4, 6), rand(4, 6)),
}


@pytest.mark.parametrize("case", MODULES.values(), ids=MODULES.keys())
def test_modules(case: tuple[Any, ...], either_policy: bool) -> None:
    check_module(*case)


class Loss(nn.Module):
    """A loss with its target, as a module of one input."""

    def __init__(self, loss: Callable[..., torch.Tensor], *others: torch.Tensor) -> None:
        super().__init__()
        self.loss = loss
        for index, other in enumerate(others):
            self.register_buffer(f"other{index}", other)

    def forward(self, scores: torch.Tensor) -> torch.Tensor:
        return self.loss(scores, *self.buffers())


LOSSES: dict[str, tuple[Any, ...]] = {
    "cross_entropy": (F.cross_entropy, rand(4, 6), ints(4, high=6)),
    "cross_entropy_smoothed": (lambda x, t: F.cross_entropy(x, t, label_smoothing=0.1), rand(4, 6), ints(4, high=6)),
    "cross_entropy_ignore": (lambda x, t: F.cross_entropy(x, t, ignore_index=2), rand(4, 6), ints(4, high=6)),
    "cross_entropy_probabilities": (F.cross_entropy, rand(4, 6), rand(4, 6).softmax(1)),
    "cross_entropy_2d": (F.cross_entropy, rand(2, 6, 3, 3), ints(2, 3, 3, high=6)),
    "nll": (lambda x, t: F.nll_loss(x.log_softmax(1), t), rand(4, 6), ints(4, high=6)),
    "mse": (F.mse_loss, rand(4, 6), rand(4, 6)),
    "l1_none": (lambda x, t: F.l1_loss(x, t, reduction="none"), rand(4, 6), rand(4, 6)),
    "smooth_l1": (F.smooth_l1_loss, rand(4, 6), rand(4, 6)),
    "huber": (F.huber_loss, rand(4, 6), rand(4, 6)),
    "huber_none": (lambda x, t: F.huber_loss(x, t, reduction="none"), rand(4, 6), rand(4, 6)),
    "bce_logits": (F.binary_cross_entropy_with_logits, rand(4, 6), rand(4, 6).sigmoid()),
    "bce": (lambda x, t: F.binary_cross_entropy(x.sigmoid(), t), rand(4, 6), rand(4, 6).sigmoid()),
    "kl": (lambda x, t: F.kl_div(x.log_softmax(1), t, reduction="batchmean"), rand(4, 6), rand(4, 6).softmax(1)),
    "hinge": (F.hinge_embedding_loss, rand(4, 6), rand(4, 6).sign()),
    "margin": (F.multi_margin_loss, rand(4, 6), ints(4, high=6)),
    "multilabel": (F.multilabel_margin_loss, rand(4, 6), ints(4, 6, high=6)),
    "triplet": (F.triplet_margin_loss, rand(4, 6), rand(4, 6), rand(4, 6)),
    "poisson": (F.poisson_nll_loss, rand(4, 6), rand(4, 6).abs()),
    "gaussian": (F.gaussian_nll_loss, rand(4, 6), rand(4, 6), rand(4, 6).abs() + 0.1),
    "ctc": (
        lambda x, t: F.ctc_loss(x.log_softmax(2), t, torch.tensor([8, 8]), torch.tensor([3, 3])),
        rand(8, 2, 5),
        ints(2, 3, high=4) + 1,
    ),
}


@pytest.mark.parametrize("case", LOSSES.values(), ids=LOSSES.keys())
def test_losses(case: tuple[Any, ...], either_policy: bool) -> None:
    loss, scores, *others = case
    check_module(lambda: Loss(loss, *others), scores)


def test_packed_sequence() -> None:
    torch.manual_seed(0)
    lstm = nn.LSTM(4, 5, batch_first=True)
    results = []
    for device in ("cpu", "neuron"):
        module = copy.deepcopy(lstm).to(device)
        data = Twins(device).of(rand(2, 6, 4).fill_(0.5))
        packed = nn.utils.rnn.pack_padded_sequence(data, torch.tensor([6, 3]), batch_first=True)
        output, lengths = nn.utils.rnn.pad_packed_sequence(module(packed)[0], batch_first=True)
        assert lengths.tolist() == [6, 3]
        output.sum().backward()
        results.append([output, *(parameter.grad for parameter in module.parameters())])
    assert_same(results[1], results[0], exact=False, strides=False)


ATTENTION: dict[str, dict[str, Any]] = {
    "plain": {},
    "causal": {"is_causal": True},
    "scaled": {"scale": 0.5},
    "float_mask": {"attn_mask": rand(6, 6)},
    "bool_mask": {"attn_mask": torch.ones(6, 6, dtype=torch.bool).tril()},
}


@pytest.mark.parametrize("options", ATTENTION.values(), ids=ATTENTION.keys())
@pytest.mark.parametrize("trains", [False, True], ids=["inference", "training"])
def test_attention(options: dict[str, Any], trains: bool, either_policy: bool) -> None:
    shapes = [rand(2, 3, 6, 8) for _ in range(3)]
    results = []
    for device in ("cpu", "neuron"):
        query, key, value = (tensor.requires_grad_(trains) for tensor in Twins(device).of(shapes))
        output = F.scaled_dot_product_attention(query, key, value, **Twins(device).of(options))
        if trains:
            output.square().sum().backward()
        results.append([output, query.grad, key.grad, value.grad] if trains else [output])
    assert_same(results[1], results[0], exact=False)


def test_attention_is_fused() -> None:
    """Attention takes the CPU's flash kernel, as it does on the CPU, and not the decomposition; without a wait, even if
    the gradient is an expanded scalar.
    """
    query = torch.randn(1, 2, 6, 8, device="neuron", requires_grad=True)
    _C.reset_op_counts()
    F.scaled_dot_product_attention(query, query, query, is_causal=True).sum().backward()
    torch.neuron.synchronize()
    ran = _C.op_counts()
    assert "aten::_scaled_dot_product_flash_attention_for_cpu" in ran
    assert "aten::_scaled_dot_product_flash_attention_for_cpu_backward" in ran
    assert "aten::bmm" not in ran


@pytest.mark.parametrize("bias", [None, rand(6, 6)], ids=["plain", "bias"])
def test_attention_by_the_name_that_dtensor_calls(bias: torch.Tensor | None, either_policy: bool) -> None:
    """The same kernel, forward and backward, bit for bit; logsumexp has the shape that ring attention merges."""
    shapes = [rand(2, 3, 6, 8) for _ in range(3)]
    mask = None if bias is None else bias.to("neuron").expand(2, 3, 6, 6)
    results = []
    for efficient in (False, True):
        query, key, value = (tensor.to("neuron").requires_grad_() for tensor in shapes)
        if efficient:
            output, logsumexp, seed, offset = torch.ops.aten._scaled_dot_product_efficient_attention(
                query, key, value, mask, True, 0.0, bias is None
            )
            assert logsumexp.shape == (2, 3, 6) and seed.dim() == offset.dim() == 0
        else:
            output = F.scaled_dot_product_attention(query, key, value, mask, is_causal=bias is None)
        output.square().sum().backward()
        results.append([output, query.grad, key.grad, value.grad])
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))


def test_attention_refuses_the_gradient_of_a_bias() -> None:
    """By name; scaled_dot_product_attention has another way for it."""
    query = rand(2, 3, 6, 8).to("neuron").requires_grad_()
    bias = rand(2, 3, 6, 6).to("neuron").requires_grad_()
    output = torch.ops.aten._scaled_dot_product_efficient_attention(query, query, query, bias, True)[0]
    with pytest.raises(NotImplementedError, match="no gradient for attn_bias"):
        output.sum().backward()
    F.scaled_dot_product_attention(query, query, query, bias).sum().backward()
    assert bias.grad is not None


def test_attention_where_one_kernel_is_allowed(either_policy: bool) -> None:
    """Flash and efficient are names of the same kernel here; the switches stay as the user left them."""
    query = rand(2, 3, 6, 8)
    expected = F.scaled_dot_product_attention(query, query, query, is_causal=True)
    device = query.to("neuron")
    for backend in (SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH):
        with sdpa_kernel(backend):
            output = F.scaled_dot_product_attention(device, device, device, is_causal=True)
            assert torch.backends.cuda.flash_sdp_enabled() == (backend == SDPBackend.FLASH_ATTENTION)
        assert_same(output, expected, exact=False, strides=False)


def test_attention_without_memory_to_look_at() -> None:
    """The choice of the kernel for fake tensors, as a trace makes them, and for those of vmap and grad."""
    with FakeTensorMode():
        query = torch.empty(2, 3, 6, 8, device="neuron", requires_grad=True)
        assert F.scaled_dot_product_attention(query, query, query).shape == query.shape

    def attention(query: torch.Tensor) -> torch.Tensor:
        return F.scaled_dot_product_attention(query, query, query, is_causal=True)

    assert_matches_cpu(torch.func.vmap(attention), rand(2, 2, 3, 6, 8))
    assert_matches_cpu(torch.func.grad(lambda query: attention(query).square().sum()), rand(2, 3, 6, 8))


@pytest.mark.parametrize("shape", [(1,), (2, 3), (4, 8, 16)], ids=str)
def test_norms_are_the_cpus_kernels(shape: tuple[int, ...], either_policy: bool) -> None:
    """Bit for bit: these have a composite form as well, which is another algorithm."""
    value, weight = rand(*shape) * 5, rand(shape[-1])
    assert_matches_cpu(lambda x, w: F.layer_norm(x, x.shape[-1:], w, w), value, weight)
    assert_matches_cpu(lambda x: torch.native_layer_norm(x, x.shape[-1:], None, None, 1e-5), value)
    if len(shape) == 3:
        assert_matches_cpu(lambda x: F.group_norm(x, 4), value.view(4, 8, 16))
    _C.reset_op_counts()
    F.layer_norm(value.to("neuron"), value.shape[-1:])
    assert "aten::native_layer_norm" in {**_C.op_counts(), **_C.fallback_counts()}


def test_batch_norm_of_strided_input(either_policy: bool) -> None:
    """The out= form of the CPU's kernel leaves the mean unwritten there."""
    value, running = rand(3, 4, 5, 6)[:, :, ::2], torch.zeros(4)
    assert_matches_cpu(lambda x, m, v: F.batch_norm(x, m, v, training=True), value, running, running + 1)
    assert_matches_cpu(lambda x: F.batch_norm(x, None, None, training=True), value.transpose(2, 3))


def test_attention_grouped_and_dropout() -> None:
    query, key = rand(2, 4, 6, 8), rand(2, 2, 6, 8)
    grouped = [
        F.scaled_dot_product_attention(q, k, k, enable_gqa=True)
        for q, k in (Twins(device).of((query, key)) for device in ("cpu", "neuron"))
    ]
    assert_same(grouped[1], grouped[0], exact=False, strides=False)
    device = query.to("neuron")
    torch.neuron.manual_seed(3)
    dropped = F.scaled_dot_product_attention(device, device, device, dropout_p=0.5)
    torch.neuron.manual_seed(3)
    assert torch.equal(dropped, F.scaled_dot_product_attention(device, device, device, dropout_p=0.5))
    assert not torch.equal(dropped, F.scaled_dot_product_attention(device, device, device, dropout_p=0.5))


OFFSETS = torch.tensor([8, 16, 24, 32], dtype=torch.int32)
GROUPED: dict[str, tuple[Any, ...]] = {
    "batches": (rand(4, 8, 16), rand(4, 16, 8), None),
    "rows": (rand(32, 16), rand(4, 16, 8), OFFSETS),
    "columns": (rand(4, 8, 16), rand(16, 32), OFFSETS),
    "inner": (rand(16, 32), rand(32, 8), OFFSETS),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("case", GROUPED.values(), ids=GROUPED.keys())
def test_grouped_mm(case: tuple[Any, ...], dtype: torch.dtype, either_policy: bool) -> None:
    results = []
    for device in ("cpu", "neuron"):
        a, b = (Twins(device).of(tensor.to(dtype)).requires_grad_() for tensor in case[:2])
        product = torch._grouped_mm(a, b, offs=Twins(device).of(case[2]))
        (product * product).sum().backward()
        results.append([product, a.grad, b.grad])
    assert_same(results[1], results[0], exact=False)


def test_module_moves() -> None:
    module = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3))
    weight = module[0].weight
    assert module.to("neuron") is module
    assert module[0].weight is weight, "moving keeps the parameter objects"
    assert all(tensor.device.type == "neuron" for tensor in module.state_dict().values())
    assert module.cpu()[0].weight.device.type == "cpu"
    assert module.neuron()[1].running_mean.device.type == "neuron"
    assert module.to(torch.bfloat16)[0].weight.dtype == torch.bfloat16
    with torch.device("meta"):
        shapes = nn.Linear(4, 2)
    materialized = shapes.to_empty(device="neuron")
    nn.init.normal_(materialized.weight)
    assert materialized.weight.device.type == "neuron"
    with torch.device("neuron"):
        assert nn.Linear(4, 2).weight.device.type == "neuron"


def test_gradient_tools() -> None:
    parameters = [nn.Parameter(Twins("neuron").of(rand(3, 3))) for _ in range(3)]
    for parameter in parameters:
        parameter.grad = torch.full_like(parameter, 2.0)
    norm = nn.utils.clip_grad_norm_(parameters, 1.0)
    assert norm.item() == pytest.approx((27 * 4) ** 0.5)
    assert torch.cat([p.grad.flatten() for p in parameters]).norm().item() == pytest.approx(1.0, abs=1e-5)
    nn.utils.clip_grad_value_(parameters, 0.01)
    assert parameters[0].grad.max().item() == pytest.approx(0.01)
    vector = nn.utils.parameters_to_vector(parameters)
    nn.utils.vector_to_parameters(vector * 0, parameters)
    assert all(p.eq(0).all().item() for p in parameters)
