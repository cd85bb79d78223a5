"""Optimizers in all their modes: the same weights as on the CPU, and as in each other mode."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.optim.lr_scheduler import CosineAnnealingLR, LinearLR, SequentialLR

from neuron_emu import _C

OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "sgd": lambda p, **mode: torch.optim.SGD(p, lr=0.1, **mode),
    "sgd_momentum": lambda p, **mode: torch.optim.SGD(
        p, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01, **mode
    ),
    "adam": lambda p, **mode: torch.optim.Adam(p, lr=0.01, **mode),
    "adam_amsgrad": lambda p, **mode: torch.optim.Adam(p, lr=0.01, amsgrad=True, weight_decay=0.01, **mode),
    "adamw": lambda p, **mode: torch.optim.AdamW(p, lr=0.01, weight_decay=0.1, **mode),
    "adamw_tensor_rate": lambda p, **mode: torch.optim.AdamW(p, lr=torch.tensor(0.01), **mode),
    "adagrad": lambda p, **mode: torch.optim.Adagrad(p, lr=0.1, **mode),
}
NOT_FUSED: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "adadelta": lambda p, **mode: torch.optim.Adadelta(p, **mode),
    "adamax": lambda p, **mode: torch.optim.Adamax(p, lr=0.01, **mode),
    "nadam": lambda p, **mode: torch.optim.NAdam(p, lr=0.01, **mode),
    "radam": lambda p, **mode: torch.optim.RAdam(p, lr=0.01, **mode),
    "rmsprop": lambda p, **mode: torch.optim.RMSprop(p, lr=0.01, momentum=0.9, **mode),
    "rprop": lambda p, **mode: torch.optim.Rprop(p, lr=0.01, **mode),
    "asgd": lambda p, **mode: torch.optim.ASGD(p, lr=0.01, **mode),
}
FUSED = [torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW, torch.optim.Adagrad]
MODES: dict[str, dict[str, bool]] = {
    "default": {},
    "for_loop": {"foreach": False},
    "foreach": {"foreach": True},
    "fused": {"fused": True},
}


def parameters(device: str, dtypes: tuple[torch.dtype, ...] = (torch.float32,)) -> list[nn.Parameter]:
    """Several shapes, a 0-dim one among them; mixed dtypes."""
    generator = torch.Generator().manual_seed(3)
    made = []
    for dtype in dtypes:
        for shape in ((4, 3), (7,), (), (2, 2, 2)):
            made.append(nn.Parameter(torch.randn(shape, generator=generator).to(dtype).to(device)))
    return made


def trained(
    make: Callable[..., torch.optim.Optimizer], device: str, mode: dict[str, bool], dtypes: tuple[torch.dtype, ...]
) -> list[torch.Tensor]:
    weights = parameters(device, dtypes)
    optimizer = make(weights, **mode)
    generator = torch.Generator().manual_seed(4)
    for _ in range(5):
        for weight in weights:
            weight.grad = torch.randn(weight.shape, generator=generator).to(weight.dtype).to(device)
        optimizer.step()
    return [weight.detach().cpu() for weight in weights]


def assert_all_close(actual: list[torch.Tensor], expected: list[torch.Tensor]) -> None:
    for ours, theirs in zip(actual, expected, strict=True):
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("mode", MODES.values(), ids=MODES.keys())
@pytest.mark.parametrize("make", OPTIMIZERS.values(), ids=OPTIMIZERS.keys())
def test_modes_agree(make: Callable[..., torch.optim.Optimizer], mode: dict[str, bool], either_policy: bool) -> None:
    """Field case 53, fused included."""
    dtypes = (torch.float32, torch.float64)
    expected = trained(make, "cpu", {"foreach": False}, dtypes)
    try:
        trained(make, "cpu", mode, dtypes)
    except ValueError as refusal:  # upstream's, of a mode that an optimizer does not have with these options
        with pytest.raises(ValueError, match=re.escape(str(refusal))):
            trained(make, "neuron", mode, dtypes)
        return
    assert_all_close(trained(make, "neuron", mode, dtypes), expected)


@pytest.mark.parametrize("mode", ["default", "for_loop", "foreach"])
@pytest.mark.parametrize("make", NOT_FUSED.values(), ids=NOT_FUSED.keys())
def test_other_optimizers(make: Callable[..., torch.optim.Optimizer], mode: str) -> None:
    expected = trained(make, "cpu", {"foreach": False}, (torch.float32,))
    assert_all_close(trained(make, "neuron", MODES[mode], (torch.float32,)), expected)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_low_precision(dtype: torch.dtype) -> None:
    for make in (OPTIMIZERS["sgd_momentum"], OPTIMIZERS["adamw"]):
        assert_all_close(
            trained(make, "neuron", {"foreach": True}, (dtype,)), trained(make, "cpu", {"foreach": True}, (dtype,))
        )


def test_foreach_is_the_default() -> None:
    """A device whose optimizers fall apart into one call a tensor would be many times slower."""
    for make in (OPTIMIZERS["sgd_momentum"], OPTIMIZERS["adamw"]):
        weights = parameters("neuron")
        for weight in weights:
            weight.grad = torch.ones_like(weight)
        optimizer = make(weights)
        optimizer.step()
        _C.reset_op_counts()
        optimizer.step()
        ran = {**_C.op_counts(), **_C.fallback_counts()}
        assert any("_foreach_" in name for name in ran), ran
        assert not any(name.startswith("aten::addcdiv") for name in ran)


def trained_at_a_tensor_rate(
    kind: Callable[..., torch.optim.Optimizer], shape: tuple[int, ...], device: str
) -> list[torch.Tensor]:
    weights = parameters(device)
    rate = torch.full(shape, 0.1)
    optimizer = kind(weights, lr=rate, fused=True)
    for _ in range(3):
        for weight in weights:
            weight.grad = torch.ones_like(weight)
        optimizer.step()
        rate.mul_(0.5)
    return [weight.detach().cpu() for weight in weights]


@pytest.mark.parametrize("shape", [(), (1,), (1, 1)], ids=str)
@pytest.mark.parametrize("kind", FUSED)
def test_fused_rate_on_the_host(
    kind: Callable[..., torch.optim.Optimizer], shape: tuple[int, ...], either_policy: bool
) -> None:
    """A rate on the host is a number, whatever its dimensions; each step takes the value that it had at the call."""
    expected = trained_at_a_tensor_rate(kind, shape, "cpu")
    _C.reset_op_counts()
    assert_all_close(trained_at_a_tensor_rate(kind, shape, "neuron"), expected)
    assert not any("_fused_" in name for name in _C.fallback_counts())


@pytest.mark.parametrize("operator", ["_foreach_addcdiv", "_foreach_addcmul"])
@pytest.mark.parametrize("count", [1, 3])
def test_foreach_scalars_on_the_host(operator: str, count: int, either_policy: bool) -> None:
    """CUDA takes them from nowhere else."""

    def result(device: str) -> list[torch.Tensor]:
        first, second, third = (
            [torch.full((2,), base + i, device=device) for i in range(count)] for base in (1.0, 4.0, 8.0)
        )
        scalars = torch.arange(1.0, count + 1)
        made = getattr(torch, operator)(first, second, third, scalars)
        getattr(torch, operator + "_")(first, second, third, scalars)
        scalars.zero_()
        return [tensor.cpu() for tensor in (*made, *first)]

    assert_all_close(result("neuron"), result("cpu"))


def test_fused_gradients_on_the_host_are_refused() -> None:
    options = {"weight_decay": 0, "momentum": 0, "dampening": 0, "nesterov": False, "maximize": False}
    with pytest.raises(RuntimeError, match="same device"):
        torch._fused_sgd_(
            [torch.ones(1, device="neuron")], [torch.ones(1)], [], lr=torch.ones(1), is_first_step=True, **options
        )


def test_foreach_is_one_command_for_all_tensors() -> None:
    weights = [torch.ones(5, device="neuron") for _ in range(40)]
    torch._foreach_add_(weights, 1.0)
    torch.neuron.synchronize()
    before = _C.stream_positions(0, 0)[0]
    torch._foreach_add_(weights, 2.0)
    assert _C.stream_positions(0, 0)[0] - before == 1
    assert all(weight.tolist() == [4] * 5 for weight in weights)


def test_foreach_of_mixed_dtypes_and_devices() -> None:
    first = [torch.ones(3, device="neuron"), torch.ones(2, dtype=torch.float64, device="neuron")]
    assert [t.dtype for t in torch._foreach_mul(first, 2.0)] == [torch.float32, torch.float64]
    split = [torch.ones(3, device="neuron:0"), torch.ones(3, device="neuron:1")]
    optimizer = torch.optim.Adam([nn.Parameter(tensor) for tensor in split], lr=0.1)
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    assert all(p.item() == pytest.approx(0.9) for g in optimizer.param_groups for q in g["params"] for p in q)


def test_optimizer_made_before_the_move() -> None:
    """Parameters keep their identity when a module moves, so that an optimizer that has them goes on."""
    module = nn.Linear(3, 3)
    optimizer = torch.optim.SGD(module.parameters(), lr=1.0)
    module.to("neuron")
    before = module.weight.detach().clone()
    module(torch.ones(1, 3, device="neuron")).sum().backward()
    optimizer.step()
    assert torch.equal(module.weight, before - 1)


def test_changing_the_rate_makes_no_plans() -> None:
    weights = parameters("neuron")
    optimizer = torch.optim.AdamW(weights, lr=0.1)
    schedule = SequentialLR(
        optimizer, [LinearLR(optimizer, 0.1, total_iters=3), CosineAnnealingLR(optimizer, 20)], milestones=[3]
    )
    for step in range(10):
        for weight in weights:
            weight.grad = torch.ones_like(weight)
        if step == 3:
            before = _C.plan_cache_stats()["misses"]
        optimizer.step()
        schedule.step()
    assert _C.plan_cache_stats()["misses"] == before


def test_capturable_and_closures() -> None:
    weights = parameters("neuron")
    optimizer = torch.optim.LBFGS(weights, lr=0.5, max_iter=5)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = sum(weight.square().sum() for weight in weights)
        loss.backward()
        return loss

    first = closure().item()
    optimizer.step(closure)
    assert closure().item() < first / 2
    accumulating = torch.optim.SGD(weights, lr=0.1)
    accumulating.zero_grad(set_to_none=False)
    assert all(weight.grad.abs().sum().item() == 0 for weight in weights)
    average = torch.optim.swa_utils.AveragedModel(nn.Linear(2, 2).to("neuron"))
    average.update_parameters(nn.Linear(2, 2).to("neuron"))
    assert average.n_averaged.item() == 1
