"""torch's own DistributedTest, from its wheel, on this device: minutes a run, in `make test-all`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from launch import base_environment

SUITE = Path(__file__).with_name("upstream_suite.py")


def run_suite(report: Path, *options: str) -> dict[str, object]:
    done = subprocess.run(
        [sys.executable, str(SUITE), "--report", str(report), *options],
        env=base_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert report.exists(), done.stdout[-5000:]
    return json.loads(report.read_text())


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("mode", "enough"), [("device", 145), ("default_device", 85)])
@pytest.mark.parametrize("world_size", [2, 4])
def test_distributed_test(tmp_path: Path, world_size: int, mode: str, enough: int) -> None:
    options = ["--world-size", str(world_size), *(["--default-device"] if mode == "default_device" else [])]
    outcome = run_suite(tmp_path / "report.json", *options)
    assert outcome["failed"] == {}
    assert len(outcome["passed"]) >= enough  # type: ignore[arg-type]


@pytest.mark.parametrize("only", ["test_all_reduce_sum_cuda", "test_all_gather_object_default_pg"])
def test_one_of_it(tmp_path: Path, only: str) -> None:
    outcome = run_suite(tmp_path / "report.json", "--only", f"^{only}$")
    assert outcome == {"passed": [only], "skipped": {}, "failed": {}}
