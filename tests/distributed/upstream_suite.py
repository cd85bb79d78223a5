"""Runs torch's own DistributedTest, which comes with its wheel, on this device: a program of its own.

    python upstream_suite.py --world-size 2 [--default-device] [--only REGEX] --report FILE

Two ways to bring the tests to the device. By default they take the path that they have for CUDA and NCCL: a copy of
the module is made in memory in which the device and the backend have other names. With --default-device the names
stay, and each rank makes its tensors on the device because torch.set_default_device says so: those are the tests that
NCCL skips because their tensors are the CPU's, and those of all-to-all, coalescing and messages that only gloo and MPI
run there. What needs two devices or CUDA streams is skipped in that way, and runs in the other.

Tests named in upstream_skips.toml are left out. The report is JSON: {"passed": [...], "skipped": {name: reason},
"failed": {name: last line}}. Exit 1 when a test failed.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import time
import traceback
import unittest
from pathlib import Path
from typing import Any

SKIPS = Path(__file__).with_name("upstream_skips.toml")


class Report(unittest.TestResult):
    def __init__(self) -> None:
        super().__init__()
        self.outcome: dict[str, Any] = {"passed": [], "skipped": {}, "failed": {}}

    def startTest(self, test: unittest.TestCase) -> None:
        super().startTest(test)
        self.began = time.monotonic()

    def _say(self, word: str, test: unittest.TestCase, detail: str = "") -> None:
        seconds = time.monotonic() - self.began
        print(f"{word} {test._testMethodName} ({seconds:.1f} s) {detail}"[:200], flush=True)

    def addSuccess(self, test: unittest.TestCase) -> None:
        self.outcome["passed"].append(test._testMethodName)
        self._say("passed", test)

    def addSkip(self, test: unittest.TestCase, reason: str) -> None:
        self.outcome["skipped"][test._testMethodName] = reason

    def addFailure(self, test: unittest.TestCase, error: Any) -> None:
        lines = [line for line in "".join(traceback.format_exception(*error)).splitlines() if line.strip()]
        errors = [line for line in lines if re.match(r"\s*[\w.]*(Error|Exception)\b", line)]
        # The last is the cause: the rank's own error follows the parent's "exited with error code".
        self.outcome["failed"][test._testMethodName] = (errors or lines)[-1].strip()
        self._say("FAILED", test, self.outcome["failed"][test._testMethodName])

    addError = addFailure


def left_out(mode: str) -> dict[str, str]:
    """Test name (a pattern) -> reason."""
    try:
        import tomllib
    except ModuleNotFoundError:  # before Python 3.11
        import tomli as tomllib
    table = tomllib.loads(SKIPS.read_text())
    return {**table["both"], **table[mode]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--world-size", type=int, default=2)
    parser.add_argument("--default-device", action="store_true")
    parser.add_argument("--only", default=".")
    parser.add_argument("--report", type=Path)
    arguments = parser.parse_args()
    os.environ["WORLD_SIZE"] = str(arguments.world_size)
    if arguments.default_device:
        os.environ["UPSTREAM_DEFAULT_DEVICE"] = "1"
    from upstream_on_neuron import TestOnNeuron  # after the environment, which it reads

    reasons = left_out("default_device" if arguments.default_device else "device")
    report = Report()
    for name in unittest.TestLoader().getTestCaseNames(TestOnNeuron):
        if not re.search(arguments.only, name):
            continue
        test = TestOnNeuron(name)
        reason = next((why for pattern, why in reasons.items() if re.fullmatch(pattern, name)), None)
        if reason is not None:
            report.addSkip(test, f"upstream_skips.toml: {reason}")
        else:
            test.run(report)
    outcome = report.outcome
    print(f"{len(outcome['passed'])} passed, {len(outcome['failed'])} failed, {len(outcome['skipped'])} skipped")
    if arguments.report:
        arguments.report.write_text(json.dumps(outcome, indent=1))
    sys.exit(1 if outcome["failed"] else 0)


if __name__ == "__main__":
    main()
