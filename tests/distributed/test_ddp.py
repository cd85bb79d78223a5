"""DDP as the specification describes it, equal to CPU + gloo, on real processes."""

from __future__ import annotations

from pathlib import Path

import pytest
from checks import CheckResults, check_names, run_checks
from launch import run_torchrun

RANKS = Path(__file__).with_name("ranks_ddp.py")
EXAMPLE = Path(__file__).parents[2] / "examples" / "ddp.py"


@pytest.fixture(scope="module", params=[2, 4], ids=["2ranks", "4ranks"])
def results(request: pytest.FixtureRequest) -> CheckResults:
    return run_checks(RANKS, request.param, timeout=280)


@pytest.mark.parametrize("name", check_names(RANKS))
def test_ddp(results: CheckResults, name: str) -> None:
    results.verify(name)


def test_guide_example() -> None:
    run = run_torchrun(EXAMPLE, 2)
    assert run.returncode == 0, run.describe()
    losses = [float(line.split("loss=")[1]) for line in run.stdout.splitlines()]
    assert len(losses) == 5 and losses[-1] < losses[0]
