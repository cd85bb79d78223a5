"""A training step on neuron against CPU eager: both sides in this process, round by round in turn.

Prints the median step of each side, wall and CPU time, and their ratio; --json writes the same. With --processes 2,
that many such processes run at once and each prints its own line.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
from workloads import WORKLOADS, Step

import torch_neuronx  # noqa: F401


class Side:
    """One device's step and its times."""

    def __init__(self, device: str, step: Step) -> None:
        self.device = device
        self.step = step
        self.wall: list[float] = []
        self.cpu: list[float] = []

    def timed(self, steps: int) -> None:
        wall, cpu = time.perf_counter(), time.process_time()
        for _ in range(steps):
            self.step()
        if self.device == "neuron":
            torch.neuron.synchronize()
        self.wall.append((time.perf_counter() - wall) / steps)
        self.cpu.append((time.process_time() - cpu) / steps)


def run_at_once(args: argparse.Namespace) -> None:
    """Several of this benchmark at the same time; the file gets a list of their results."""
    options = ["workload", "threads", "rounds", "batch", "sequence"]
    child = [sys.executable, __file__, *(word for name in options for word in (f"--{name}", str(getattr(args, name))))]
    with tempfile.TemporaryDirectory() as scratch:
        files = [Path(scratch) / f"{i}.json" for i in range(args.processes)]
        running = [subprocess.Popen([*child, "--json", str(file)]) for file in files]
        outcomes = [process.wait() for process in running]
        if any(outcomes):
            sys.exit("a process failed")
        if args.json:
            Path(args.json).write_text(json.dumps([json.loads(file.read_text()) for file in files], indent=1))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workload", choices=WORKLOADS, default="gpt")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--sequence", type=int, default=64)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--json")
    args = parser.parse_args()
    if args.processes > 1:
        run_at_once(args)
        return
    torch.set_num_threads(args.threads)
    make, steps = WORKLOADS[args.workload]
    cpu, neuron = (Side(device, make(device, args.batch, args.sequence)) for device in ("cpu", "neuron"))
    for side in (cpu, neuron):
        side.timed(5)
        side.wall.clear()
        side.cpu.clear()
    for _ in range(args.rounds):
        cpu.timed(steps)
        neuron.timed(steps)
    wall = statistics.median(n / c for n, c in zip(neuron.wall, cpu.wall, strict=True))
    busy = statistics.median(n / c for n, c in zip(neuron.cpu, cpu.cpu, strict=True))
    result = {
        "workload": args.workload,
        "threads": args.threads,
        "batch": args.batch,
        "sequence": args.sequence,
        "cpu_ms": statistics.median(cpu.wall) * 1e3,
        "neuron_ms": statistics.median(neuron.wall) * 1e3,
        "wall_ratio": wall,
        "cpu_time_ratio": busy,
    }
    cpu_ms, neuron_ms = result["cpu_ms"], result["neuron_ms"]
    print(
        f"{args.workload} step, {args.threads} thread(s): cpu {cpu_ms:.3f} ms, neuron {neuron_ms:.3f} ms, "
        f"wall {wall:.3f}x, CPU time {busy:.3f}x"
    )
    if args.json:
        with open(args.json, "w") as file:
            json.dump(result, file, indent=1)


if __name__ == "__main__":
    main()
