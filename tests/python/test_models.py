"""The families of models: 20 steps give the CPU's losses, and no step waits for the device where none would on CUDA."""

from __future__ import annotations

import pytest
import torch
from models import CASES, Case

from neuron_emu import _C

STEPS = 20


def train(case: Case, device: str, steps: int) -> list[torch.Tensor]:
    """The losses of all steps, still on the device."""
    torch.manual_seed(0)
    model = case.make().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    generator = torch.Generator().manual_seed(1)
    losses = []
    for _ in range(steps):
        batch = tuple(tensor.to(device) for tensor in case.batch(generator))
        optimizer.zero_grad()
        loss = case.loss(model, batch)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return losses


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_losses_are_the_cpus(case: Case, either_policy: bool) -> None:
    expected = [loss.item() for loss in train(case, "cpu", STEPS)]
    losses = [loss.item() for loss in train(case, "neuron", STEPS)]
    assert losses == pytest.approx(expected, rel=1e-3, abs=1e-4)
    assert losses[-1] < 0.95 * losses[0]


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_steps_do_not_wait(case: Case, queued: bool) -> None:
    train(case, "neuron", 2)
    torch.neuron.synchronize()
    _C.reset_op_counts()
    train(case, "neuron", 3)
    waited = {name for name, _reason, _count in _C.drains()}
    assert waited == case.waits, _C.drains()


@pytest.mark.parametrize("name", ["resnet", "gpt", "lstm", "vit"])
def test_kernels_make_their_results_in_device_memory(name: str, queued: bool) -> None:
    """Where a first run has shown which of its allocations a kernel returns, no result is copied any more."""
    train(CASES[name], "neuron", 2)
    torch.neuron.synchronize()
    _C.reset_op_counts()
    train(CASES[name], "neuron", 3)
    torch.neuron.synchronize()
    assert _C.copied_results() == {}
