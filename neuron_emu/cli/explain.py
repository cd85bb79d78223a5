"""`neuron-emu explain`: merges the ranks' flight-recorder dumps and says who diverged first.

Exit status: 0 all ranks agree, 1 they diverged or wait for each other, 2 the input cannot be used.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from neuron_emu.explain.dumps import UnusableError, load
from neuron_emu.explain.report import explain


def run(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="neuron-emu explain", description=__doc__)
    parser.add_argument("paths", nargs="+", type=Path, metavar="PATH", help="a folder of dumps, or the ranks' files")
    try:
        report = explain(load(parser.parse_args(arguments).paths))
    except UnusableError as error:
        print(f"neuron-emu explain: {error}", file=sys.stderr)
        return 2
    print("\n".join(report.lines))
    return 1 if report.diverged else 0
