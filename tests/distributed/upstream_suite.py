"""Runs torch's own DistributedTest, which comes with its wheel, on this device: a program of its own.

    python upstream_suite.py --world-size 2 [--default-device] [--only REGEX] --report FILE

Two ways to bring the tests to the device. By default they take the path that they have for CUDA and NCCL: a copy of
the module is made in memory in which the device and the backend have other names. With --default-device the module
stays as it is, and each rank makes its tensors on the device because torch.set_default_device says so: those are the
tests that NCCL skips because their tensors are the CPU's.

Tests named in upstream_skips.toml are left out. The report is JSON: {"passed": [...], "skipped": {name: reason},
"failed": {name: last line}}. Exit 1 when a test failed.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import os
import re
import sys
import traceback
import types
import unittest
from pathlib import Path
from typing import Any

SECONDS_PER_TEST = 240
SKIPS = Path(__file__).with_name("upstream_skips.toml")
MODULE = "torch.testing._internal.distributed.distributed_test"

# Children of the tests import this file again, and find here what the parent was told.
os.environ.setdefault("BACKEND", "neuron")
os.environ.setdefault("WORLD_SIZE", "2")
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("NEURON_EMU_LIMITS", "extended")
os.environ.setdefault("NEURON_EMU_QUIET", "1")
os.environ["DISTRIBUTED_TESTS_DEFAULT_TIMEOUT"] = str(SECONDS_PER_TEST)


def _option(name: str, otherwise: str = "") -> str:
    return sys.argv[sys.argv.index(name) + 1] if name in sys.argv else otherwise


if "--world-size" in sys.argv:
    os.environ["WORLD_SIZE"] = _option("--world-size")
if "--default-device" in sys.argv:
    os.environ["UPSTREAM_DEFAULT_DEVICE"] = "1"
DEFAULT_DEVICE = "UPSTREAM_DEFAULT_DEVICE" in os.environ
WORLD_SIZE = int(os.environ["WORLD_SIZE"])

import torch  # noqa: E402
from torch.testing._internal import common_distributed  # noqa: E402

import torch_neuronx  # noqa: E402, F401

# In the module's text; the order matters.
RENAMED = [
    (
        r"^from torch\.cuda\.amp import .*$",
        "import functools\n"
        "autocast = functools.partial(torch.amp.autocast, 'neuron')\n"
        "GradScaler = functools.partial(torch.amp.GradScaler, 'neuron')",
    ),
    (r"^import torch\.cuda$", ""),
    (r"dist\.Backend\.NCCL\b", "'neuron'"),
    (r"dist\.is_nccl_available\(\)", "True"),
    (r"""(["'])nccl\1""", "'neuron'"),
    (r"\btorch\.cuda\.(?!nccl)", "torch.neuron."),
    (r"""(["'])cuda(?=[:"'])""", r"\1neuron"),
]


def _count_as_supported() -> None:
    """The lists and decorators by which the suite asks for hardware."""
    for feature in common_distributed.DistTestCases.backend_feature.values():
        feature.add("neuron")
    common_distributed.DistTestCases.backend_feature["neuron"] = {"neuron"}
    # What the suite leaves out for NCCL: torch's front offers neither for such a backend.
    for form in ("allgather_coalesced", "cpu barrier"):
        common_distributed.DistTestCases.skip_collective[form].add("neuron")

    def enough(_: Any, *__: Any, **___: Any) -> Any:
        return lambda test: test

    common_distributed.skip_if_lt_x_gpu = enough
    common_distributed.skip_if_no_gpu = lambda test: test
    common_distributed.nccl_skip_if_lt_x_gpu = enough
    common_distributed.require_n_gpus_for_nccl_backend = enough
    common_distributed.init_multigpu_helper = lambda size, _: {rank: [rank] for rank in range(int(size))}


def _load() -> types.ModuleType:
    if DEFAULT_DEVICE:
        for feature in ("gpu", "cuda", "ddp", "subgroup", "plugin"):
            common_distributed.DistTestCases.backend_feature[feature].add("neuron")
        return importlib.import_module(MODULE)
    _count_as_supported()

    def to_device(self: Any, device: Any = None, **_: Any) -> Any:
        return self.to("neuron" if device is None else torch.device(device))  # of an index: the accelerator

    torch.Tensor.cuda = to_device
    torch.nn.Module.cuda = to_device
    spec = importlib.util.find_spec(MODULE)
    assert spec is not None and spec.origin is not None
    text = Path(spec.origin).read_text()
    for pattern, replacement in RENAMED:
        text = re.sub(pattern, replacement, text, flags=re.MULTILINE)
    module = types.ModuleType("distributed_test_on_neuron")
    module.__file__ = spec.origin
    sys.modules[module.__name__] = module
    exec(compile(text, spec.origin, "exec"), module.__dict__)
    return module


upstream = _load()


class TestOnNeuron(upstream.TestDistBackend, upstream.DistributedTest._DistTestBase):  # type: ignore[misc, name-defined]
    def setUp(self) -> None:
        super().setUp()
        self._spawn_processes()

    @classmethod
    def _run(cls, rank: int, *arguments: Any, **options: Any) -> None:
        os.environ["RANK"] = os.environ["LOCAL_RANK"] = str(rank)
        torch.neuron.set_device(rank)
        if DEFAULT_DEVICE:
            torch.set_default_device(torch.device("neuron", rank))
        super()._run(rank, *arguments, **options)


class Report(unittest.TestResult):
    def __init__(self) -> None:
        super().__init__()
        self.outcome: dict[str, Any] = {"passed": [], "skipped": {}, "failed": {}}

    def _say(self, word: str, test: unittest.TestCase, detail: str = "") -> None:
        print(f"{word} {test._testMethodName} {detail}"[:200], flush=True)

    def addSuccess(self, test: unittest.TestCase) -> None:
        self.outcome["passed"].append(test._testMethodName)
        self._say("passed", test)

    def addSkip(self, test: unittest.TestCase, reason: str) -> None:
        self.outcome["skipped"][test._testMethodName] = reason

    def addFailure(self, test: unittest.TestCase, error: Any) -> None:
        lines = [line for line in "".join(traceback.format_exception(*error)).splitlines() if line.strip()]
        errors = [line for line in lines if re.match(r"\s*[\w.]*(Error|Exception)\b", line)]
        self.outcome["failed"][test._testMethodName] = (errors or lines)[0 if errors else -1].strip()
        self._say("FAILED", test, self.outcome["failed"][test._testMethodName])

    addError = addFailure


def left_out() -> dict[str, str]:
    """Test name (a pattern) -> reason, for this way of running."""
    try:
        import tomllib
    except ModuleNotFoundError:  # before Python 3.11
        import tomli as tomllib
    table = tomllib.loads(SKIPS.read_text())
    return {**table["both"], **table["default_device" if DEFAULT_DEVICE else "device"]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--world-size", type=int, default=2)
    parser.add_argument("--default-device", action="store_true")
    parser.add_argument("--only", default=".")
    parser.add_argument("--report", type=Path)
    arguments = parser.parse_args()
    reasons = left_out()
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
