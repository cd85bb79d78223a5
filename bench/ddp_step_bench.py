"""DDP training step on neuron against CPU + gloo: both in the same ranks, step by step in turn. Run it under torchrun:

    torchrun --standalone --nproc-per-node=2 bench/ddp_step_bench.py [--rounds N] [--json FILE]

The GPT of gpt.py, batch and sequence per rank. Prints the median step of the slowest rank on either side and, over
the rounds, the median ratio neuron / gloo of wall time and of the ranks' CPU time.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time

import torch
import torch.distributed as dist
from gpt import GPT, loss_of
from torch.nn.parallel import DistributedDataParallel

import torch_neuronx  # noqa: F401


class Side:
    """One device's replica; both begin with the same weights and see the same tokens."""

    def __init__(self, device: str, batch: int, sequence: int) -> None:
        torch.manual_seed(0)
        self.device = device
        self.model = DistributedDataParallel(GPT(sequence=sequence).to(device))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3)
        generator = torch.Generator().manual_seed(dist.get_rank())
        tokens = torch.randint(0, 512, (batch, sequence + 1), generator=generator)
        self.tokens, self.targets = tokens[:, :-1].to(device), tokens[:, 1:].to(device)

    def round(self, steps: int) -> tuple[float, float, float]:
        """Seconds a step of the slowest rank, CPU seconds a step of all ranks, the last loss."""
        dist.barrier()
        wall, cpu = time.perf_counter(), time.process_time()
        for _ in range(steps):
            self.optimizer.zero_grad()
            loss = loss_of(self.model, self.tokens, self.targets)
            loss.backward()
            self.optimizer.step()
        last = loss.item()
        if self.device == "neuron":
            torch.neuron.synchronize()
        slowest = torch.tensor((time.perf_counter() - wall) / steps, dtype=torch.float64)
        total = torch.tensor((time.process_time() - cpu) / steps, dtype=torch.float64)
        dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
        dist.all_reduce(total)
        return slowest.item(), total.item(), last


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--steps", type=int, default=3, help="steps a round")
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--sequence", type=int, default=64)
    parser.add_argument("--json")
    args = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("cpu:gloo,neuron:neuron")
    gloo, neuron = (Side(device, args.batch, args.sequence) for device in ("cpu", "neuron"))
    gloo.round(args.steps), neuron.round(args.steps)
    rounds = [(gloo.round(args.steps), neuron.round(args.steps)) for _ in range(args.rounds)]
    for (_, _, expected), (_, _, got) in rounds:
        assert abs(got - expected) <= 1e-3 * abs(expected), f"losses differ: {got} on neuron, {expected} on CPU"
    result = {
        "world_size": dist.get_world_size(),
        "cpus": os.cpu_count(),
        "gloo_ms": statistics.median(g[0] for g, _ in rounds) * 1e3,
        "neuron_ms": statistics.median(n[0] for _, n in rounds) * 1e3,
        "wall_ratio": statistics.median(n[0] / g[0] for g, n in rounds),
        "cpu_time_ratio": statistics.median(n[1] / g[1] for g, n in rounds),
    }
    if dist.get_rank() == 0:
        print(
            f"DDP step, {result['world_size']} ranks: gloo {result['gloo_ms']:.1f} ms, neuron "
            f"{result['neuron_ms']:.1f} ms, wall {result['wall_ratio']:.3f}x, CPU time {result['cpu_time_ratio']:.3f}x",
            flush=True,
        )
        if args.json:
            with open(args.json, "w") as file:
                json.dump(result, file, indent=1)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
