"""The grid of collectives against plain arithmetic, on 1, 2, 3, 4, 7 and 8 ranks as real processes."""

from __future__ import annotations

from pathlib import Path

import pytest
from checks import run_checks

RANKS = Path(__file__).with_name("ranks_grid.py")
CHECKS = ("world", "other_order", "overlapping_groups", "groups_of_one")


@pytest.mark.parametrize("world_size", [1, 2, 3, 4, 7, 8])
def test_reduced_grid(world_size: int) -> None:
    results = run_checks(RANKS, world_size, env={"NEURON_EMU_LIMITS": "extended"})
    for name in CHECKS:
        results.verify(name)


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("world_size", [1, 2, 3, 4, 7, 8])
def test_whole_grid(world_size: int) -> None:
    env = {"NEURON_EMU_LIMITS": "extended", "NEURON_TEST_GRID": "whole"}
    results = run_checks(RANKS, world_size, timeout=3500, check_limit=1500, env=env)
    for name in CHECKS:
        results.verify(name)
