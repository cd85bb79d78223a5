"""Autocast and GradScaler on the device: the lists of other accelerators."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

LOW = [torch.bfloat16, torch.float16]


@pytest.fixture(params=LOW, ids=str)
def low(request: pytest.FixtureRequest) -> torch.dtype:
    return request.param


def dtypes_of(tensors: dict[str, torch.Tensor]) -> dict[str, torch.dtype]:
    return {name: tensor.dtype for name, tensor in tensors.items()}


def test_lists(low: torch.dtype, either_policy: bool) -> None:
    """Field case 52: matrix products and convolutions in the low precision, softmax, norms and losses in fp32."""
    x, weight = torch.randn(4, 8, device="neuron"), torch.randn(8, 8, device="neuron")
    image, kernel = torch.randn(1, 3, 8, 8, device="neuron"), torch.randn(4, 3, 3, 3, device="neuron")
    with torch.autocast("neuron", dtype=low):
        low_precision = {
            "linear": F.linear(x, weight),
            "matmul": x @ weight,
            "mm": torch.mm(x, weight),
            "bmm": torch.bmm(x[None], weight[None]),
            "addmm": torch.addmm(x[0], x, weight),
            "conv2d": F.conv2d(image, kernel),
            "einsum": torch.einsum("ij,jk->ik", x, weight),
            "attention": F.scaled_dot_product_attention(*[x.view(1, 1, 4, 8)] * 3),
        }
        full_precision = {
            "softmax": (x.to(low)).softmax(-1),
            "log_softmax": F.log_softmax(x.to(low), -1),
            "layer_norm": F.layer_norm(x.to(low), (8,)),
            "cross_entropy": F.cross_entropy(x.to(low), torch.zeros(4, dtype=torch.int64, device="neuron")),
            "mse_loss": F.mse_loss(x.to(low), x.to(low)),
            "exp": x.to(low).exp(),
            "log": x.to(low).abs().log(),
            "pow": x.to(low).pow(2),
            "sum": x.to(low).sum(),
            "norm": x.to(low).norm(),
        }
        kept = {"relu": F.relu(x), "add": x + x, "integer": torch.arange(3, device="neuron") * 2}
        assert (x + x.to(low)).dtype == torch.float32
        assert torch.cat([x, x.to(low)]).dtype == torch.float32, "widest type"
    assert {name: tensor.dtype for name, tensor in low_precision.items()} == dict.fromkeys(low_precision, low)
    assert {name: tensor.dtype for name, tensor in full_precision.items()} == dict.fromkeys(
        full_precision, torch.float32
    )
    assert kept["relu"].dtype == torch.float32
    assert kept["add"].dtype == torch.float32
    assert kept["integer"].dtype == torch.int64
    assert F.linear(x, weight).dtype == torch.float32, "nothing outside of the context"
    torch.testing.assert_close(low_precision["linear"].float(), F.linear(x, weight), rtol=0.05, atol=0.1)


def test_unsafe_losses_are_refused(low: torch.dtype) -> None:
    x = torch.rand(3, device="neuron")
    with torch.autocast("neuron", dtype=low):
        with pytest.raises(RuntimeError, match="binary_cross_entropy_with_logits|unsafe to autocast"):
            F.binary_cross_entropy(x, x)
        assert F.binary_cross_entropy_with_logits(x.to(low), x.to(low)).isfinite().item()


def test_context() -> None:
    assert torch.amp.is_autocast_available("neuron")
    default = torch.get_autocast_dtype("neuron")
    assert default in LOW
    assert not torch.is_autocast_enabled("neuron")
    x = torch.randn(4, 4, device="neuron")
    with torch.autocast("neuron"):
        assert torch.is_autocast_enabled("neuron")
        assert (x @ x).dtype == default
        with torch.autocast("neuron", enabled=False):
            assert (x @ x).dtype == torch.float32
        for dtype in LOW:
            with torch.autocast("neuron", dtype=dtype):
                assert (x @ x).dtype == dtype
        assert (x @ x).dtype == default
        assert (x.cpu() @ x.cpu()).dtype == torch.float32, "the CPU has its own switch"
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert (x @ x).dtype == torch.float32
    with pytest.warns(UserWarning), torch.autocast("neuron", dtype=torch.float64):
        assert (x @ x).dtype == torch.float32

    @torch.autocast("neuron", dtype=torch.bfloat16)
    def decorated(value: torch.Tensor) -> torch.Tensor:
        return value @ value

    assert decorated(x).dtype == torch.bfloat16


def test_weights_are_cast_once(low: torch.dtype) -> None:
    from neuron_emu import _C

    linear = nn.Linear(8, 8).to("neuron")
    x = torch.randn(2, 8, device="neuron").to(low)

    def casts(enabled: bool) -> int:
        with torch.autocast("neuron", dtype=low, cache_enabled=enabled):
            linear(x)
            before = _C.stream_positions(0, 0)[0]
            linear(x)
            return _C.stream_positions(0, 0)[0] - before

    assert casts(True) < casts(False)


class CastSensitive(torch.autograd.Function):
    @staticmethod
    @torch.amp.custom_fwd(device_type="neuron", cast_inputs=torch.float32)
    def forward(ctx: torch.autograd.function.FunctionCtx, x: torch.Tensor) -> torch.Tensor:
        assert x.dtype == torch.float32
        assert not torch.is_autocast_enabled("neuron")
        return x * 2

    @staticmethod
    @torch.amp.custom_bwd(device_type="neuron")
    def backward(ctx: torch.autograd.function.FunctionCtx, grad: torch.Tensor) -> torch.Tensor:
        return grad * 2


def test_custom_functions() -> None:
    with torch.autocast("neuron", dtype=torch.bfloat16):
        x = torch.ones(3, device="neuron", requires_grad=True)
        CastSensitive.apply((x * 1).bfloat16()).sum().backward()
    assert x.grad.tolist() == [2, 2, 2]


def make(device: str) -> tuple[nn.Module, torch.optim.Optimizer, torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.LayerNorm(32), nn.Linear(32, 4)).to(device)
    data, target = torch.randn(8, 16), torch.randint(0, 4, (8,))
    return module, torch.optim.SGD(module.parameters(), lr=0.1), data.to(device), target.to(device)


def test_training_as_on_the_cpu() -> None:
    losses = {}
    for device in ("cpu", "neuron"):
        module, optimizer, data, target = make(device)
        losses[device] = []
        for _ in range(5):
            optimizer.zero_grad()
            with torch.autocast(device, dtype=torch.bfloat16):
                loss = F.cross_entropy(module(data), target)
            loss.backward()
            optimizer.step()
            losses[device].append(loss.item())
        assert module[0].weight.grad.dtype == torch.float32
    assert losses["neuron"] == pytest.approx(losses["cpu"], rel=0.02)
    assert losses["neuron"][-1] < losses["neuron"][0]


def test_grad_scaler_trains(low: torch.dtype) -> None:
    module, optimizer, data, target = make("neuron")
    scaler = torch.amp.GradScaler("neuron", init_scale=1024.0, growth_interval=3)
    assert scaler.is_enabled()
    losses = []
    for _ in range(6):
        optimizer.zero_grad()
        with torch.autocast("neuron", dtype=low):
            loss = F.cross_entropy(module(data), target)
        scaled = scaler.scale(loss)
        assert scaled.item() == pytest.approx(loss.item() * scaler.get_scale(), rel=1e-3)
        scaled.backward()
        scaler.unscale_(optimizer)
        norm = nn.utils.clip_grad_norm_(module.parameters(), 1.0)
        assert norm.isfinite().item()
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.item())
    assert losses[-1] < losses[0]
    assert scaler.get_scale() == 4096.0, "doubled after every three good steps"


@pytest.mark.parametrize("foreach", [False, True], ids=["for_loop", "foreach"])
def test_grad_scaler_skips_an_infinite_step(foreach: bool) -> None:
    weight = nn.Parameter(torch.ones(3, device="neuron"))
    optimizer = torch.optim.SGD([weight], lr=1.0, foreach=foreach)
    scaler = torch.amp.GradScaler("neuron", init_scale=8.0)
    for bad in (float("inf"), float("nan")):
        scaler.scale((weight * bad).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        assert weight.tolist() == [1, 1, 1]
    assert scaler.get_scale() == 2.0
    scaler.scale((weight * 0.5).sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    assert weight.tolist() == [0.5, 0.5, 0.5]
    state = scaler.state_dict()
    other = torch.amp.GradScaler("neuron")
    other.load_state_dict(state)
    assert other.get_scale() == 2.0
    disabled = torch.amp.GradScaler("neuron", enabled=False)
    assert disabled.scale(weight) is weight
