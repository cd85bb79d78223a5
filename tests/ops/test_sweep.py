"""Every operator of torch.testing against the CPU: some in `make test`, all in `make test-all`."""

from __future__ import annotations

import json
from pathlib import Path

import generate_operator_docs
import pytest
from op_entries import IN_EVERY_MODEL, SHORT_SAMPLES, a_tenth, derivative_entries, entries, short_entries
from op_sweep import sweep
from op_verdict import Result, unexpected, verdict

SHORT_DERIVATIVE_SAMPLES = 5


def failed(results: dict[str, Result]) -> dict[str, list[str]]:
    return {entry: problems for entry, result in results.items() if (problems := unexpected(result))}


@pytest.mark.timeout(1200)
def test_a_tenth(tmp_path: Path) -> None:
    chosen = short_entries()
    assert set(chosen) >= IN_EVERY_MODEL
    results = sweep(chosen, tmp_path, most_samples=SHORT_SAMPLES)
    assert failed(results) == {}
    assert sum(sum(result["passed"].values()) for result in results.values()) > 20 * len(chosen)


@pytest.mark.long
@pytest.mark.timeout(4 * 3600)
def test_all(tmp_path: Path) -> None:
    results = sweep(entries(), tmp_path)
    report = tmp_path / "operators.jsonl"
    report.write_text("".join(json.dumps(result) + "\n" for result in results.values()))
    assert failed(results) == {}
    single = [verdict(result) for entry, result in results.items() if entry.endswith("/float32")]
    assert single.count("passed") >= 0.99 * len(single)
    assert generate_operator_docs.OUTPUT.read_text() == generate_operator_docs.render(results), (
        f"run python tools/generate_operator_docs.py {report}"
    )


@pytest.mark.timeout(1200)
def test_a_tenth_of_the_higher_derivatives(tmp_path: Path) -> None:
    chosen = a_tenth(derivative_entries())
    results = sweep(chosen, tmp_path, most_samples=SHORT_DERIVATIVE_SAMPLES, checks="derivatives")
    assert failed(results) == {}
    assert sum(sum(result["passed"].values()) for result in results.values()) > 3 * len(chosen)


@pytest.mark.long
@pytest.mark.timeout(4 * 3600)
def test_all_higher_derivatives(tmp_path: Path) -> None:
    results = sweep(derivative_entries(), tmp_path, most_samples=SHORT_SAMPLES, checks="derivatives")
    assert failed(results) == {}


def test_a_crash_is_one_entry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The worker is replaced by one that dies in the second entry, and hangs in the fourth."""
    worker = tmp_path / "op_worker.py"
    worker.write_text(
        """
import json, os, sys, time
with open(sys.argv[1], "a") as report:
    for line in sys.stdin:
        entry = line.strip()
        print(json.dumps({"begins": entry}), file=report, flush=True)
        if entry == "two":
            os.abort()
        if entry == "four":
            time.sleep(600)
        result = {"entry": entry, "passed": {}, "failures": [], "refusals": [], "broken": None}
        print(json.dumps(result), file=report, flush=True)
"""
    )
    monkeypatch.setattr("op_sweep.HERE", tmp_path)
    monkeypatch.setattr("op_sweep.ENTRY_SECONDS", 2)
    results = sweep(["one", "two", "three", "four", "five"], tmp_path, workers=1)
    assert list(results) == ["one", "two", "three", "four", "five"]
    assert {entry: problems[0].split(":")[0] for entry, problems in failed(results).items()} == {
        "two": "crashes",
        "four": "hangs",
    }
