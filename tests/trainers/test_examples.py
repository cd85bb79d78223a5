"""Accelerate and Lightning Fabric train on `neuron` as the CPU and gloo do: `make test-titan`."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from launch import run_torchrun

EXAMPLES = Path(__file__).parents[2] / "examples"


def losses(script: str, device: str, env: dict[str, str] | None = None) -> dict[int, float]:
    run = run_torchrun(EXAMPLES / script, 2, timeout=300, env=env)
    assert run.returncode == 0, run.describe()
    found = re.findall(rf"^epoch=(\d+) loss=([\d.]+) device={device}$", run.stdout, flags=re.MULTILINE)
    return {int(epoch): float(loss) for epoch, loss in found}


@pytest.fixture(scope="module")
def on_cpu() -> dict[int, float]:
    expected = losses("accelerate_ddp.py", "cpu", {"ACCELERATE_USE_CPU": "true"})
    assert list(expected) == list(range(5)) and expected[4] < expected[0] / 4
    return expected


@pytest.mark.parametrize("script", ["accelerate_ddp.py", "fabric_ddp.py"])
def test_losses(on_cpu: dict[int, float], script: str) -> None:
    assert losses(script, "neuron") == pytest.approx(on_cpu, abs=1e-5)
