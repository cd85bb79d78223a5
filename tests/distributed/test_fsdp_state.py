"""What FSDP2 keeps in device memory by the specification's words, and its state dicts and checkpoints."""

from __future__ import annotations

from pathlib import Path

import pytest
from checks import CheckResults, check_names, run_checks

RANKS = Path(__file__).with_name("ranks_fsdp_state.py")


@pytest.fixture(scope="module", params=[2, 4], ids=["2ranks", "4ranks"])
def results(request: pytest.FixtureRequest) -> CheckResults:
    return run_checks(RANKS, request.param, timeout=280)


@pytest.mark.parametrize("name", check_names(RANKS))
def test_fsdp_state(results: CheckResults, name: str) -> None:
    results.verify(name)
