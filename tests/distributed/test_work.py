"""Work and Future semantics and the order between streams, held by gates, on real processes."""

from __future__ import annotations

from pathlib import Path

import pytest
from checks import CheckResults, check_names, run_checks

WORK = Path(__file__).with_name("ranks_work.py")
HOST_CC = Path(__file__).with_name("ranks_host_cc.py")


@pytest.fixture(scope="module", params=[2, 3], ids=["2ranks", "3ranks"])
def work(request: pytest.FixtureRequest) -> CheckResults:
    return run_checks(WORK, request.param)


@pytest.fixture(scope="module")
def host_cc() -> CheckResults:
    return run_checks(HOST_CC, 2, env={"TORCH_NEURONX_ENABLE_HOST_CC": "1"})


@pytest.mark.parametrize("name", check_names(WORK))
def test_work(work: CheckResults, name: str) -> None:
    work.verify(name)


@pytest.mark.parametrize("name", check_names(HOST_CC))
def test_host_cc(host_cc: CheckResults, name: str) -> None:
    host_cc.verify(name)
