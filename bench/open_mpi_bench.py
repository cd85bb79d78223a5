"""The engine's collectives against Open MPI's, in the same processes, in turn: collectives_bench --mpi under mpirun.

    python bench/open_mpi_bench.py [--bench PROGRAM] [--json FILE]

Needs mpirun, and collectives_bench built where libopenmpi-dev was installed; without mpirun it says so and ends well.
A row's ratio is the median over the pairs of batches of MPI's time divided by ours.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

PROGRAM = Path(__file__).resolve().parent.parent / "build/release/bench/collectives_bench"
# ranks, smallest, largest, factor, batches
RUNS = [
    (2, "8", "4K", "2", "25"),
    (2, "1M", "64M", "4", "11"),
    (4, "1M", "16M", "4", "7"),
    (8, "1M", "16M", "4", "7"),
    (16, "1M", "16M", "4", "5"),
]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bench", type=Path, default=PROGRAM)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    mpirun = shutil.which("mpirun")
    if mpirun is None:
        print("no mpirun: nothing measured (Debian: apt-get install openmpi-bin libopenmpi-dev, then build again)")
        if args.json:
            args.json.write_text(json.dumps({"rows": []}))
        return
    launcher = [mpirun, "--oversubscribe", *(["--allow-run-as-root"] if os.geteuid() == 0 else [])]
    rows = []
    with tempfile.TemporaryDirectory() as scratch:
        for ranks, smallest, largest, factor, batches in RUNS:
            output = Path(scratch) / "rows.json"
            options = ["--mpi", "--op", "all", "-b", smallest, "-e", largest, "-f", factor, "-n", batches]
            command = [*launcher, "-n", str(ranks), str(args.bench), *options, "--json", str(output)]
            subprocess.run(command, check=True, stdout=sys.stdout)
            rows += [json.loads(line) for line in output.read_text().splitlines()]
    if args.json:
        args.json.write_text(json.dumps({"rows": rows}, indent=1))


if __name__ == "__main__":
    main()
