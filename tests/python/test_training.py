"""Training: the same bits in two runs, the CPU's losses, and nothing that the host's reading changes."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator

import pytest
import torch
import torch.nn.functional as F
from models import LENGTH, VOCABULARY, gpt
from torch import nn

from neuron_emu import _C

BATCH = 4


def batches(steps: int) -> Iterator[torch.Tensor]:
    """Sequences with something to learn: each token is the one before plus a step of the row."""
    generator = torch.Generator().manual_seed(1)
    for _ in range(steps):
        start = torch.randint(0, VOCABULARY, (BATCH, 1), generator=generator)
        stride = torch.randint(1, 4, (BATCH, 1), generator=generator)
        yield (start + stride * torch.arange(LENGTH + 1)) % VOCABULARY


def train(device: str, steps: int, *, dropout: float = 0.0, read: bool = False, lr: float = 3e-3) -> list[float]:
    """The losses of all steps, as Python numbers."""
    torch.manual_seed(0)
    model = gpt(dropout).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr)
    torch.manual_seed(2)
    losses = []
    for tokens in batches(steps):
        tokens = tokens.to(device, non_blocking=True)
        optimizer.zero_grad()
        loss = F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item() if read else loss.detach())
    return [float(loss) for loss in losses]


def test_two_hundred_steps(queued: bool) -> None:
    """Bit-equal in two runs with the same seed; the CPU's losses within fp32 tolerance; with .item() or without."""
    first = train("neuron", 200)
    assert all(math.isfinite(loss) for loss in first)
    assert sum(first[-10:]) < 0.5 * sum(first[:10]), "nothing was learned"
    assert train("neuron", 200) == first
    assert train("neuron", 200, read=True) == first, "reading the loss changed the training"
    expected = train("cpu", 200)
    assert first[:20] == pytest.approx(expected[:20], rel=1e-4)
    assert first == pytest.approx(expected, rel=0.02)


def test_inline_or_queued_is_the_same(queued: bool) -> None:
    first = train("neuron", 30, dropout=0.1)
    _C.set_inline(True)
    assert train("neuron", 30, dropout=0.1) == first


def test_dropout_is_reproducible(queued: bool) -> None:
    first = train("neuron", 30, dropout=0.1)
    assert train("neuron", 30, dropout=0.1, read=True) == first
    assert train("neuron", 30, dropout=0.2) != first


def test_on_another_device(queued: bool) -> None:
    """Everything with device="neuron" on the second core. Field case 55."""
    expected = train("neuron", 10, dropout=0.1)
    with torch.neuron.device(1):
        torch.neuron.manual_seed(2)
        losses = train("neuron", 10, dropout=0.1)
        assert _C.memory_stats(1)["allocation_requests"] > 0
    assert losses == expected


def test_steps_make_no_plans_and_do_not_wait(queued: bool) -> None:
    """After the first steps all plans are there, and no operator of a step drains the stream."""
    train("neuron", 3, dropout=0.1)
    before, _ = _C.plan_cache_stats(), _C.reset_op_counts()
    train("neuron", 5, dropout=0.1)
    after = _C.plan_cache_stats()
    assert after["misses"] == before["misses"]
    assert after["hits"] > before["hits"]
    assert not [row for row in _C.drains() if not row[0].startswith("aten::_local_scalar_dense")], _C.drains()


def test_memory_of_training_does_not_grow(queued: bool) -> None:
    train("neuron", 3)
    torch.neuron.synchronize()
    before = torch.neuron.memory_allocated()
    for _ in range(3):
        train("neuron", 10)
    torch.neuron.synchronize()
    assert torch.neuron.memory_allocated() == before


def _peak(inline: bool) -> int:
    _C.set_inline(inline)
    torch.manual_seed(0)
    model = gpt().to("neuron")
    optimizer = torch.optim.AdamW(model.parameters())
    torch.neuron.synchronize()
    base = torch.neuron.memory_allocated()
    torch.neuron.reset_peak_memory_stats()
    for tokens in batches(5):
        tokens = tokens.to("neuron")
        optimizer.zero_grad()
        F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten()).backward()
        optimizer.step()
    torch.neuron.synchronize()
    return torch.neuron.max_memory_allocated() - base


def test_peak_memory_of_a_step(queued: bool) -> None:
    """Running ahead costs at most a twentieth more than running synchronously."""
    _peak(inline=True)
    assert _peak(inline=False) <= 1.05 * _peak(inline=True)


def test_gradient_accumulation() -> None:
    torch.manual_seed(0)
    model = gpt().to("neuron")
    twin = copy.deepcopy(model)
    tokens = torch.cat(list(batches(2))).to("neuron")

    def loss(module: nn.Module, rows: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(module(rows[:, :-1]).flatten(0, 1), rows[:, 1:].flatten())

    loss(model, tokens).backward()
    for part in tokens.chunk(2):
        (loss(twin, part) / 2).backward()
    for whole, summed in zip(model.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(whole.grad, summed.grad)


class Tower(nn.Module):
    """Convolutions, norms, recurrence: the other families of layers, in one small model."""

    def __init__(self) -> None:
        super().__init__()
        self.convolutions = nn.Sequential(
            nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 8, 3, stride=2)
        )
        self.recurrent = nn.LSTM(8, 16, batch_first=True)
        self.head = nn.Linear(16, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        features = self.convolutions(x).flatten(2).transpose(1, 2)
        return self.head(self.recurrent(features)[0][:, -1])


def test_a_model_of_other_layers(either_policy: bool) -> None:
    losses = {}
    for device in ("cpu", "neuron"):
        torch.manual_seed(0)
        model = Tower().to(device)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
        data, target = torch.randn(8, 1, 12, 12).to(device), torch.randint(0, 3, (8,)).to(device)
        losses[device] = []
        for _ in range(20):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(data), target)
            loss.backward()
            optimizer.step()
            losses[device].append(loss.item())
    assert losses["neuron"] == pytest.approx(losses["cpu"], rel=5e-3, abs=1e-4)
    assert losses["neuron"][-1] < 0.8 * losses["neuron"][0]
