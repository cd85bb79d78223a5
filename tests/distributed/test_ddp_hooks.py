"""DDP's communication hooks, joins and optimizers, equal to CPU + gloo, on real processes."""

from __future__ import annotations

from pathlib import Path

import pytest
from checks import CheckResults, check_names, run_checks

RANKS = Path(__file__).with_name("ranks_ddp_hooks.py")


@pytest.fixture(scope="module", params=[2, pytest.param(4, marks=pytest.mark.long)], ids=["2ranks", "4ranks"])
def results(request: pytest.FixtureRequest) -> CheckResults:
    return run_checks(RANKS, request.param, timeout=280, env={"TORCH_NEURONX_ENABLE_HOST_CC": "1"})


@pytest.mark.parametrize("name", check_names(RANKS))
def test_ddp_hooks(results: CheckResults, name: str) -> None:
    results.verify(name)
