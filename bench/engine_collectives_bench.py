"""The engine's large collectives against bare loops over the same mapping, and bf16 against fp32: collectives_bench.

    python bench/engine_collectives_bench.py [--bench PROGRAM] [--json FILE]

Two ranks as threads, one on each processor. A row's ratio is the median over the pairs of batches of the bare
loop's time divided by ours. The bf16 figures are bytes per second of bf16 divided by those of fp32; their runs take
turns, and each figure is the median of its runs.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

PROGRAM = Path(__file__).resolve().parent.parent / "build/release/bench/collectives_bench"
BARE = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")
LARGE = ["-b", "16M", "-e", "256M", "-f", "4", "-n", "11"]
TURNS = 3


def measure(program: Path, *options: str) -> list[dict[str, float]]:
    """The rows that one run writes."""
    with tempfile.TemporaryDirectory() as scratch:
        output = Path(scratch) / "rows.json"
        command = [str(program), "--pin", *LARGE, *options, "--json", str(output)]
        subprocess.run(command, check=True, stdout=sys.stdout)
        return [json.loads(line) for line in output.read_text().splitlines()]


def bfloat16_against_float32(program: Path) -> dict[str, float]:
    """For each size in bytes, how much of fp32's bytes per second an all_reduce of bf16 has."""
    medians: dict[str, dict[str, list[float]]] = {"float32": {}, "bfloat16": {}}
    for _ in range(TURNS):
        for dtype, sizes in medians.items():
            for row in measure(program, "--op", "all_reduce", "-d", dtype):
                sizes.setdefault(str(int(row["size"])), []).append(row["median_us"])
    middle = statistics.median
    return {size: middle(times) / middle(medians["bfloat16"][size]) for size, times in medians["float32"].items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bench", type=Path, default=PROGRAM)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    rows = [row for name in BARE for row in measure(args.bench, "--bare", "--op", name)]
    bfloat16 = bfloat16_against_float32(args.bench)
    for size, ratio in bfloat16.items():
        print(f"all_reduce of {int(size) >> 20} MB: bf16 has {ratio:.2f} of fp32's bytes per second")
    if args.json:
        args.json.write_text(json.dumps({"bare": rows, "bfloat16_against_float32": bfloat16}, indent=1))


if __name__ == "__main__":
    main()
