"""Host time of dist.all_reduce of 8 bytes, with the flight recorder on and off. Starts its own processes:

    python bench/call_cost_bench.py [--repeats N] [--json FILE]

One rank, so that nobody is waited for: the time in which the call returns, without that of the stream's thread.
Processes with and without the recorder take turns; prints the median over the processes of each one's best and median
round.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time

_CALLS = 500  # in a round: fewer than a stream takes before its submitter waits
_ROUNDS = 40


def measure() -> None:
    import torch
    import torch.distributed as dist

    dist.init_process_group("neuron")
    value = torch.ones(2, device="neuron")
    rounds = []
    for _ in range(_ROUNDS):
        torch.neuron.synchronize()  # type: ignore[attr-defined]
        start = time.perf_counter()
        for _ in range(_CALLS):
            dist.all_reduce(value)
        rounds.append((time.perf_counter() - start) / _CALLS * 1e6)
    print(min(rounds), statistics.median(rounds))
    dist.destroy_process_group()


def one_process(buffer_size: int) -> tuple[float, float]:
    environment = {
        **os.environ,
        "TORCH_FR_BUFFER_SIZE": str(buffer_size),
        "OMP_NUM_THREADS": "1",
        "NEURON_EMU_QUIET": "1",
        **dict.fromkeys(("RANK", "LOCAL_RANK"), "0"),
        **dict.fromkeys(("WORLD_SIZE", "LOCAL_WORLD_SIZE"), "1"),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "0",
    }
    run = subprocess.run(
        [sys.executable, __file__, "--measure"], env=environment, stdout=subprocess.PIPE, text=True, check=True
    )
    best, median = run.stdout.split()[-2:]
    return float(best), float(median)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--measure", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--json")
    args = parser.parse_args()
    if args.measure:
        return measure()
    sizes = {"off": 0, "on": 2000}
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in sizes}
    for _ in range(args.repeats):
        for name, size in sizes.items():
            times[name].append(one_process(size))
    results = {}
    for name, pairs in times.items():
        best, median = (statistics.median(column) for column in zip(*pairs, strict=True))
        results[f"recorder_{name}"] = {"best_us": best, "median_us": median}
        print(f"all_reduce 8 B, flight recorder {name:>3}: best {best:.2f} us, median {median:.2f} us a call")
    if args.json:
        with open(args.json, "w") as file:
            json.dump(results, file, indent=1)
    return None


if __name__ == "__main__":
    main()
