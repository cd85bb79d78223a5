"""The process group's calls in torch's profiler, on real processes."""

from __future__ import annotations

from pathlib import Path

import pytest
from checks import CheckResults, check_names, run_checks

RANKS = Path(__file__).with_name("ranks_profiler.py")


@pytest.fixture(scope="module")
def profiled() -> CheckResults:
    return run_checks(RANKS, 3, env={"NEURON_EMU_LIMITS": "extended"})


@pytest.mark.parametrize("name", check_names(RANKS))
def test_profiler(profiled: CheckResults, name: str) -> None:
    profiled.verify(name)
