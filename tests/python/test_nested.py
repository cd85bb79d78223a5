"""Nested tensors: jagged ones train as on the CPU, attention included; the strided layout runs, too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F
from comparison import assert_same

pytestmark = pytest.mark.filterwarnings("ignore")


def parts(device: str) -> list[torch.Tensor]:
    return [torch.arange(4.0 * length).view(length, 4).to(device) / 8 for length in (2, 5, 3)]


def jagged(device: str) -> torch.Tensor:
    return torch.nested.nested_tensor(parts(device), layout=torch.jagged, device=device)


def strided(device: str) -> torch.Tensor:
    return torch.nested.nested_tensor(parts(device), layout=torch.strided, device=device)


class Block(nn.Module):
    """Attention and a feed-forward part, for jagged input."""

    def __init__(self, width: int = 4, heads: int = 2) -> None:
        super().__init__()
        self.heads = heads
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))
        self.feed = nn.Sequential(nn.Linear(width, 8), nn.GELU(), nn.Linear(8, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        normed = self.first(x)
        query, key, value = (
            part(normed).unflatten(-1, [self.heads, -1]).transpose(1, 2) for part in (self.query, self.key, self.value)
        )
        attended = F.scaled_dot_product_attention(query, key, value)
        x = x + self.out(attended.transpose(1, 2).flatten(-2))
        return x + self.feed(self.second(x))


def train(device: str) -> list[torch.Tensor]:
    torch.manual_seed(0)
    model = nn.Sequential(Block(), Block()).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    losses = []
    for _ in range(4):
        loss = model(jagged(device)).values().square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.detach())
    return losses


def test_a_transformer_of_jagged_tensors_trains() -> None:
    on_cpu, on_device = train("cpu"), train("neuron")
    assert on_cpu[-1] < on_cpu[0]
    assert_same(on_device, on_cpu, exact=False)


def attention(x: torch.Tensor) -> list[torch.Tensor]:
    value = x.unflatten(-1, [2, 2]).transpose(1, 2)
    return [F.scaled_dot_product_attention(value, value, value).transpose(1, 2).values()]


JAGGED: dict[str, Callable[[torch.Tensor], list[torch.Tensor]]] = {
    "layers": lambda x: [F.layer_norm(F.gelu(F.linear(x, torch.ones(4, 4, device=x.device))) + x, (4,)).values()],
    "attention": attention,
    "softmax": lambda x: [x.softmax(-1).values()],
    "parts": lambda x: [*x.unbind(), torch.nested.to_padded_tensor(x, 0.0)],
    "arithmetic": lambda x: [(x * x + 1).values(), torch.cat([x, x], -1).values()],
    "products": lambda x: [(x @ torch.ones(4, 3, device=x.device)).values()],
    "dtype": lambda x: [x.to(torch.bfloat16).values()],
}


@pytest.mark.parametrize("call", JAGGED.values(), ids=JAGGED.keys())
def test_jagged(call: Callable[[torch.Tensor], list[torch.Tensor]]) -> None:
    results = []
    for device in ("cpu", "neuron"):
        value = jagged(device).requires_grad_()
        outputs = call(value)
        sum(output.float().square().sum() for output in outputs).backward()
        results.append([*(output.detach() for output in outputs), value.grad.values()])
    assert_same(results[1], results[0], exact=False)


def test_reductions_of_jagged_tensors() -> None:
    for reduce in (lambda x: x.sum(1), lambda x: x.mean(1), lambda x: x.sum(-1).values()):
        assert_same(reduce(jagged("neuron")), reduce(jagged("cpu")), exact=False)


STRIDED: dict[str, Callable[[torch.Tensor], Any]] = {
    "padded": lambda x: x.to_padded_tensor(0.5),
    "unbind": lambda x: list(x.unbind()),
    "linear": lambda x: F.linear(x, x.unbind()[0].new_ones(3, 4)).to_padded_tensor(0.0),
    "softmax": lambda x: x.softmax(-1).to_padded_tensor(0.0),
    "arithmetic": lambda x: (x * 2 + x).to_padded_tensor(0.0),
    "in place": lambda x: x.clone().mul_(2).to_padded_tensor(0.0),
    "transposed": lambda x: x.transpose(1, 2).contiguous().to_padded_tensor(0.0),
    "products": lambda x: torch.bmm(x, x.transpose(1, 2)).to_padded_tensor(0.0),
    "sizes": lambda x: x._nested_tensor_size().tolist(),
    "moved": lambda x: x.cpu().to(x.device).to_padded_tensor(0.0),
}


@pytest.mark.parametrize("call", STRIDED.values(), ids=STRIDED.keys())
def test_strided(call: Callable[[torch.Tensor], Any]) -> None:
    assert_same(call(strided("neuron")), call(strided("cpu")), exact=False)


def test_gradients_of_the_strided_layout() -> None:
    results = []
    for device in ("cpu", "neuron"):
        leaves = [part.requires_grad_() for part in parts(device)]
        nested = torch.nested.as_nested_tensor(leaves)
        F.linear(nested, torch.ones(3, 4, device=device)).to_padded_tensor(0.0).square().sum().backward()
        results.append([leaf.grad for leaf in leaves])
    assert_same(results[1], results[0], exact=False)


def test_an_operator_that_the_cpu_has_not_for_nested_tensors() -> None:
    with pytest.raises(NotImplementedError, match=r"aten::\S+: neuron runs PyTorch's kernels.*for nested tensors"):
        torch.nested.nested_tensor([torch.ones(2)], device="neuron").cumsum(0)
