"""A parallel training step on neuron against CPU + gloo: both in the same ranks, in turn. Run it under torchrun:

    torchrun --standalone --nproc-per-node=2 bench/parallel_step_bench.py --way ddp|fsdp2|tp|pipeline
        [--against plain] [--width N] [--batch N] [--rounds N] [--json FILE]

The GPT of gpt.py. Prints the median step of the slowest rank on either side and, over the rounds, the median ratio
neuron / gloo of wall time and of the ranks' CPU time. With --against plain the other side is the CPU's computation
alone, each rank with its own model, without communication.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import statistics
import time

import torch
import torch.distributed as dist
from parallel_ways import WAYS, Step

import torch_neuronx  # noqa: F401


class Side:
    """One device's training; both sides begin with the same weights and see the same tokens."""

    def __init__(self, device: str, step: Step) -> None:
        self.device = device
        self.step = step

    def round(self, steps: int) -> tuple[float, float, float]:
        """Seconds a step of the slowest rank, CPU seconds a step of all ranks, the largest last loss of a rank."""
        dist.barrier()
        wall, cpu = time.perf_counter(), time.process_time()
        for _ in range(steps):
            loss = self.step()
        last = 0.0 if loss is None else loss.item()
        if self.device == "neuron":
            torch.neuron.synchronize()
        slowest = torch.tensor([(time.perf_counter() - wall) / steps, last], dtype=torch.float64)
        total = torch.tensor((time.process_time() - cpu) / steps, dtype=torch.float64)
        dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
        dist.all_reduce(total)
        return slowest[0].item(), total.item(), slowest[1].item()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--way", choices=[way for way in WAYS if way != "plain"], required=True)
    parser.add_argument("--against", choices=["gloo", "plain"], default="gloo")
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--steps", type=int, default=3, help="steps a round")
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--sequence", type=int, default=64)
    parser.add_argument("--json")
    args = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("cpu:gloo,neuron:neuron")
    options = (args.width, args.batch, args.sequence)
    gloo = Side("cpu", WAYS[args.way if args.against == "gloo" else "plain"]("cpu", *options))
    neuron = Side("neuron", WAYS[args.way]("neuron", *options))
    gloo.round(args.steps), neuron.round(args.steps)
    rounds = [(gloo.round(args.steps), neuron.round(args.steps)) for _ in range(args.rounds)]
    if args.against == "gloo":  # not the replicas that go their own ways
        for (_, _, expected), (_, _, got) in rounds:
            assert abs(got - expected) <= 1e-3 * abs(expected), f"losses differ: {got} on neuron, {expected} on CPU"
    result = {
        "way": args.way,
        "against": args.against,
        "width": args.width,
        "batch": args.batch,
        "world_size": dist.get_world_size(),
        "cpus": os.cpu_count(),
        "cpu_ms": statistics.median(g[0] for g, _ in rounds) * 1e3,
        "neuron_ms": statistics.median(n[0] for _, n in rounds) * 1e3,
        "wall_ratio": statistics.median(n[0] / g[0] for g, n in rounds),
        "cpu_time_ratio": statistics.median(n[1] / g[1] for g, n in rounds),
    }
    if dist.get_rank() == 0:
        print(
            f"{args.way} step, {result['world_size']} ranks: {args.against} {result['cpu_ms']:.1f} ms, neuron "
            f"{result['neuron_ms']:.1f} ms, wall {result['wall_ratio']:.3f}x, CPU time {result['cpu_time_ratio']:.3f}x",
            flush=True,
        )
        if args.json:
            with open(args.json, "w") as file:
                json.dump(result, file, indent=1)
    # DDP's reducer must not be the last to hold gloo's group: torch would wait, with Python's lock, for a thread of
    # gloo's that wants it.
    del gloo, neuron
    gc.collect()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
