"""A model split over ranks (TP, SP, CP, EP, and TP with FSDP) trains as the whole one does."""

from __future__ import annotations

from pathlib import Path

import pytest
from checks import CheckResults, check_names, run_checks
from launch import run_torchrun

RANKS = Path(__file__).with_name("ranks_tensor_parallel.py")
EXAMPLES = Path(__file__).parents[2] / "examples"


WAYS = [
    pytest.param((2, "0"), id="2ranks"),
    pytest.param((4, "0"), id="4ranks"),
    pytest.param((2, "1"), id="2ranks-host-cc", marks=pytest.mark.long),
]


@pytest.fixture(scope="module", params=WAYS)
def results(request: pytest.FixtureRequest) -> CheckResults:
    world_size, host_cc = request.param
    return run_checks(RANKS, world_size, timeout=280, env={"TORCH_NEURONX_ENABLE_HOST_CC": host_cc})


@pytest.mark.parametrize("name", check_names(RANKS))
def test_tensor_parallel(results: CheckResults, name: str) -> None:
    results.verify(name)


def example(script: str, world_size: int, env: dict[str, str] | None = None) -> list[str]:
    """What the example prints, when its five losses fall."""
    run = run_torchrun(EXAMPLES / script, world_size, env=env)
    assert run.returncode == 0, run.describe()
    lines = run.stdout.splitlines()
    losses = [float(line.split("loss=")[1]) for line in lines if "loss=" in line]
    assert len(losses) == 5 and losses[-1] < losses[0]
    return lines


@pytest.mark.parametrize(("world_size", "host_cc"), [(2, "0"), (4, "1")])
def test_guide_example(world_size: int, host_cc: str) -> None:
    lines = example("tensor_parallel.py", world_size, {"TORCH_NEURONX_ENABLE_HOST_CC": host_cc})
    assert f"weight=(32, 16) here=({32 // world_size}, 16)" in lines


def test_example_with_fsdp() -> None:
    assert "weight=(32, 16) here=(8, 16)" in example("tp_fsdp.py", 4)
