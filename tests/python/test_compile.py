"""torch.compile and torch.export: graphs are captured on the device; inductor says what to use in its place."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.nn as nn
from comparison import assert_same


@pytest.fixture(autouse=True)
def fresh_compiler() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def run_model(device: str, backend: str | None) -> list[torch.Tensor]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 4)).to(device)
    call: Any = model if backend is None else torch.compile(model, backend=backend, fullgraph=True)
    value = (torch.arange(24.0).view(3, 8) / 8).to(device).requires_grad_()
    output = call(value)
    output.square().sum().backward()
    return [output.detach(), value.grad, *(parameter.grad for parameter in model.parameters())]


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_captured_graphs_compute_the_same(backend: str) -> None:
    assert_same(run_model("neuron", backend), run_model("cpu", None), exact=False)


def test_random_numbers_in_a_captured_graph() -> None:
    drop = torch.compile(lambda x: torch.nn.functional.dropout(x, 0.5), backend="aot_eager")
    value = torch.ones(64, device="neuron")
    torch.manual_seed(5)
    first = drop(value)
    torch.manual_seed(5)
    assert torch.equal(drop(value).cpu(), first.cpu())
    assert 0 < first.count_nonzero().item() < 64


def test_streams_and_mutation_in_a_captured_graph() -> None:
    def step(x: torch.Tensor) -> torch.Tensor:
        x.mul_(2)
        return x.cumsum(0) + torch.arange(3, device=x.device)

    value = torch.ones(3, device="neuron")
    assert torch.compile(step, backend="aot_eager", fullgraph=True)(value).tolist() == [2, 5, 8]
    assert value.tolist() == [2, 2, 2]


@pytest.mark.parametrize("function", [lambda x: x.sin() * 2, lambda x: x.sum()], ids=["pointwise", "reduction"])
def test_inductor_says_what_to_use(function: Any) -> None:
    """For the device only: the CPU's part of a program is compiled as ever."""
    with pytest.raises(Exception, match=r"inductor generates no code for neuron.*backend='aot_eager'"):
        torch.compile(function)(torch.ones(3, device="neuron"))
    assert torch.ones(3, device="neuron").sum().item() == 3


def test_export() -> None:
    linear = nn.Linear(3, 2).to("neuron")
    value = torch.ones(4, 3, device="neuron")
    program = torch.export.export(linear, (value,))
    assert torch.equal(program.module()(value).cpu(), linear(value).cpu())
