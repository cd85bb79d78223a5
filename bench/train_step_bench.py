"""Training step of a GPT on neuron against CPU eager: both sides in this process, step by step in turn.

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
from gpt import GPT, loss_of

import torch_neuronx  # noqa: F401


class Side:
    """One device's model and the times of its steps."""

    def __init__(self, device: str, batch: int, sequence: int, vocabulary: int) -> None:
        torch.manual_seed(0)
        self.device = device
        self.model = GPT(vocabulary=vocabulary, sequence=sequence).to(device)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3)
        generator = torch.Generator().manual_seed(1)
        tokens = torch.randint(0, vocabulary, (batch, sequence + 1), generator=generator)
        self.tokens, self.targets = tokens[:, :-1].to(device), tokens[:, 1:].to(device)
        self.wall: list[float] = []
        self.cpu: list[float] = []

    def step(self) -> None:
        self.optimizer.zero_grad()
        loss = loss_of(self.model, self.tokens, self.targets)
        loss.backward()
        self.optimizer.step()

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
    options = ["threads", "rounds", "steps", "batch", "sequence"]
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
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--steps", type=int, default=2, help="steps a round")
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--sequence", type=int, default=64)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--json")
    args = parser.parse_args()
    if args.processes > 1:
        run_at_once(args)
        return
    torch.set_num_threads(args.threads)
    cpu, neuron = (Side(device, args.batch, args.sequence, 512) for device in ("cpu", "neuron"))
    for side in (cpu, neuron):
        side.timed(5)
        side.wall.clear()
        side.cpu.clear()
    for _ in range(args.rounds):
        cpu.timed(args.steps)
        neuron.timed(args.steps)
    wall = statistics.median(n / c for n, c in zip(neuron.wall, cpu.wall, strict=True))
    busy = statistics.median(n / c for n, c in zip(neuron.cpu, cpu.cpu, strict=True))
    result = {
        "threads": args.threads,
        "batch": args.batch,
        "sequence": args.sequence,
        "cpu_ms": statistics.median(cpu.wall) * 1e3,
        "neuron_ms": statistics.median(neuron.wall) * 1e3,
        "wall_ratio": wall,
        "cpu_time_ratio": busy,
    }
    print(
        f"GPT step, {args.threads} thread(s): cpu {result['cpu_ms']:.2f} ms, neuron {result['neuron_ms']:.2f} ms, "
        f"wall {wall:.3f}x, CPU time {busy:.3f}x"
    )
    if args.json:
        with open(args.json, "w") as file:
            json.dump(result, file, indent=1)


if __name__ == "__main__":
    main()
