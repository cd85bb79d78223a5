"""Point-to-point messages between real processes."""

from __future__ import annotations

from pathlib import Path

import pytest
from checks import CheckResults, check_names, run_checks

RANKS = Path(__file__).with_name("ranks_p2p.py")


@pytest.fixture(scope="module", params=[2, 3], ids=["2ranks", "3ranks"])
def results(request: pytest.FixtureRequest) -> CheckResults:
    return run_checks(RANKS, request.param, env={"NEURON_EMU_LIMITS": "extended"})


@pytest.mark.parametrize("name", check_names(RANKS))
def test_p2p(results: CheckResults, name: str) -> None:
    results.verify(name)
