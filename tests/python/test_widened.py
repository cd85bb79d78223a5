"""Element types that CUDA's kernels take and the CPU's do not: computed in a wider type, rounded to the given one."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch.nn import functional as F

from neuron_emu import _C

HALVES = (torch.float16, torch.bfloat16)
INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)


@pytest.mark.parametrize("dtype", INTEGERS)
def test_histogram_of_integers(dtype: torch.dtype) -> None:
    """How many tokens each of 8 experts gets, as mixtures of experts count them."""
    chosen = torch.tensor([7, 0, 3, 3, 1, 7, 7, 2], dtype=dtype)
    counts = torch.histc(chosen.to("neuron"), bins=8, min=0, max=7)
    assert counts.dtype == dtype and counts.tolist() == [1, 1, 1, 2, 0, 0, 0, 3]
    assert torch.histc(chosen.to("neuron"), bins=4).tolist() == [2, 3, 0, 3]
    out = torch.empty(0, dtype=dtype, device="neuron")
    assert torch.histc(chosen.to("neuron"), 8, min=0, max=7, out=out) is out
    assert out.tolist() == counts.tolist()


def resized(mode: str) -> Callable[[torch.Tensor], torch.Tensor]:
    return lambda x: F.interpolate(x, size=(3, 5), mode=mode, antialias=True)


CALLS = {
    "avg_pool3d": (lambda x: F.avg_pool3d(x, 2, stride=1, padding=1, count_include_pad=False), (2, 3, 4, 5, 4)),
    "bilinear": (resized("bilinear"), (2, 3, 8, 9)),
    "bicubic": (resized("bicubic"), (2, 3, 8, 9)),
    "multi_margin_loss": (
        lambda x: F.multi_margin_loss(x, torch.tensor([0, 2], device=x.device), weight=x.detach()[0].abs()),
        (2, 3),
    ),
    "multilabel_margin_loss": (
        lambda x: F.multilabel_margin_loss(x, torch.tensor([[0, 1, -1], [2, -1, 0]], device=x.device)),
        (2, 3),
    ),
}


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("name", CALLS)
def test_values_and_gradients(name: str, dtype: torch.dtype) -> None:
    """Those of float32, rounded once on the way out and once on the way back."""
    call, shape = CALLS[name]
    given = torch.randn(shape, generator=torch.Generator().manual_seed(0)).to(dtype)
    device, exact = given.to("neuron").requires_grad_(), given.float().requires_grad_()
    result, expected = call(device), call(exact)
    assert result.dtype == dtype and torch.equal(result.cpu(), expected.to(dtype))
    result.backward(torch.ones_like(result))
    expected.backward(torch.ones_like(expected))
    assert device.grad.dtype == dtype and torch.equal(device.grad.cpu(), exact.grad.to(dtype))


@pytest.mark.parametrize("dtype", HALVES)
def test_draws(dtype: torch.dtype) -> None:
    """The numbers of float32 from the same state of the generator, rounded."""
    rates = torch.tensor([0.5, 2.0, 30.0], dtype=dtype, device="neuron")

    def drawn(rates: torch.Tensor) -> list[torch.Tensor]:
        torch.neuron.manual_seed(3)
        distribution = torch.distributions.Gamma(rates, rates)
        return [distribution.sample((50,)), torch._sample_dirichlet(rates), torch.binomial(rates.ceil(), rates / 64)]

    for narrow, wide in zip(drawn(rates), drawn(rates.float()), strict=True):
        assert narrow.dtype == dtype
        torch.testing.assert_close(narrow, wide.to(dtype), rtol=0.02, atol=0.02)


def test_in_the_other_types_the_kernel_is_the_cpus() -> None:
    given = torch.tensor([0.0, 0.5, 1.5, 3.0])
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        assert torch.equal(torch.histc(given.to("neuron", dtype), 3).cpu(), torch.histc(given.to(dtype), 3))


def test_a_type_that_no_device_takes_is_refused() -> None:
    with pytest.raises(NotImplementedError, match="Bool"):
        torch.histc(torch.tensor([True, False], device="neuron"), 2)


def test_types_that_differ_are_left_to_the_kernel() -> None:
    chosen, out = torch.arange(4, device="neuron"), torch.empty(4, dtype=torch.float64, device="neuron")
    with pytest.raises(RuntimeError, match="histogram"):
        torch.histc(chosen, 4, out=out).cpu()
    target = torch.tensor([0, 2], device="neuron")
    for given, weight in ((torch.float32, torch.float16), (torch.float16, torch.bfloat16)):
        scores, weights = torch.ones(2, 3, dtype=given, device="neuron"), torch.ones(3, dtype=weight, device="neuron")
        with pytest.raises(RuntimeError, match="expected scalar type Float but found Half|not implemented for .Half"):
            F.multi_margin_loss(scores, target, weight=weights).cpu()


def test_nothing_drains() -> None:
    chosen = torch.arange(8, device="neuron")
    _C.reset_op_counts()
    torch.histc(chosen, 4, min=0, max=7)
    assert _C.drains() == []
