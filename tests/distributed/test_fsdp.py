"""FSDP2 as the specification describes it, equal to CPU + gloo, on real processes."""

from __future__ import annotations

from pathlib import Path

import pytest
from checks import CheckResults, check_names, run_checks

RANKS = Path(__file__).with_name("ranks_fsdp.py")


@pytest.fixture(scope="module", params=[(2, "1"), (4, "0")], ids=["2ranks-hostcc", "4ranks"])
def results(request: pytest.FixtureRequest) -> CheckResults:
    world_size, host_cc = request.param
    return run_checks(RANKS, world_size, timeout=280, env={"TORCH_NEURONX_ENABLE_HOST_CC": host_cc})


@pytest.mark.parametrize("name", check_names(RANKS))
def test_fsdp(results: CheckResults, name: str) -> None:
    results.verify(name)
