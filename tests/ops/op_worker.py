"""A process of the sweep: reads entries from its standard input, one a line, and adds two lines of JSON to the report
for each: that it begins, and what came out. A crash is seen by the line that is missing.
"""

from __future__ import annotations

import json
import sys
import time
import traceback
import warnings
from typing import Any

import torch
from op_checks import Entry
from op_entries import operators, parse

import torch_neuronx  # noqa: F401  (registers the device where the distribution is not installed)
from neuron_emu import _C


def run(entry: str, ops: dict[str, Any], most_samples: int, derivatives: bool) -> dict[str, Any]:
    name, dtype = parse(entry)
    checks = Entry(ops[name], dtype, most_samples)
    began = time.monotonic()
    broken = None
    try:
        checks.run_derivatives() if derivatives else checks.run()
    except Exception:  # noqa: BLE001  (of the sweep itself, or of torch's samples)
        broken = traceback.format_exc()
    return {
        "entry": entry,
        "passed": checks.passed,
        "inexact": checks.inexact,
        "failures": checks.failures,
        "refusals": checks.refusals,
        "broken": broken,
        "seconds": round(time.monotonic() - began, 2),
    }


def main() -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    _C.set_inline(False)  # every command on its stream's own thread, whatever the machine
    ops = operators()
    path, most_samples, derivatives = sys.argv[1], int(sys.argv[2]), sys.argv[3] == "derivatives"
    with open(path, "a") as report:
        for line in sys.stdin:
            entry = line.strip()
            print(json.dumps({"begins": entry}), file=report, flush=True)
            print(json.dumps(run(entry, ops, most_samples, derivatives)), file=report, flush=True)


if __name__ == "__main__":
    main()
