"""The examples that no other test runs."""

from __future__ import annotations

from pathlib import Path

import pytest
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


def test_every_example_is_listed() -> None:
    text = (EXAMPLES / "README.md").read_text()
    for script in EXAMPLES.glob("*.py"):
        assert f"`{script.name}`" in text
