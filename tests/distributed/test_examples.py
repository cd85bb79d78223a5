"""The examples that no other test runs."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from launch import run_torchrun

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.parametrize("host_cc", ["0", "1"])
@pytest.mark.parametrize("streams", ["0", "1"])
def test_overlap(streams: str, host_cc: str) -> None:
    env = {"TORCH_NEURONX_ENABLE_STREAMS": streams, "TORCH_NEURONX_ENABLE_HOST_CC": host_cc}
    run = run_torchrun(EXAMPLES / "overlap.py", 2, env=env)
    if (streams, host_cc) == ("0", "1"):
        assert run.returncode not in (0, None), run.describe()
        assert "hostcc-needs-streams" in run.stderr
        return
    assert run.returncode == 0, run.describe()
    lines = set(run.stdout.splitlines())
    assert {f"rank={rank}: combined=(512, 512) values_sum=3072.0" for rank in range(2)} <= lines


def fsdp2_in_one_process(world_size: int) -> list[float]:
    """What fsdp2.py prints when one CPU takes the batches of all workers at once."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.ReLU(), torch.nn.Linear(16, 16), torch.nn.ReLU())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    inputs = torch.rand(256, 16, generator=torch.Generator().manual_seed(0))
    losses = []
    for epoch in range(5):
        order = torch.randperm(256, generator=torch.Generator().manual_seed(epoch))
        for batch in inputs[order].split(16 * world_size):
            optimizer.zero_grad()
            loss = torch.nn.functional.mse_loss(model(batch), batch.flip(1))
            loss.backward()
            optimizer.step()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize(("world_size", "host_cc"), [(2, "1"), (4, "0")])
def test_fsdp2(world_size: int, host_cc: str) -> None:
    run = run_torchrun(EXAMPLES / "fsdp2.py", world_size, env={"TORCH_NEURONX_ENABLE_HOST_CC": host_cc})
    assert run.returncode == 0, run.describe()
    printed = [float(line.split("loss=")[1]) for line in run.stdout.splitlines()]
    expected = fsdp2_in_one_process(world_size)
    assert printed == pytest.approx(expected, abs=1e-4)
    assert expected[-1] < expected[0] - 1e-3  # it did learn


def test_every_example_is_listed() -> None:
    text = (EXAMPLES / "README.md").read_text()
    for script in EXAMPLES.glob("*.py"):
        assert f"`{script.name}`" in text
