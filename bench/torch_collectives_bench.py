"""dist.all_reduce through torch, neuron against gloo, both in the same ranks, in turn. Run it under torchrun:

    torchrun --standalone --nproc-per-node=2 bench/torch_collectives_bench.py [--largest BYTES] [--json FILE]

Prints, for each size, the slowest rank's median time of either side and the ratio gloo / neuron. Results are checked.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time

import torch
import torch.distributed as dist

import torch_neuronx  # noqa: F401

KIB = 1024


def seconds(tensor: torch.Tensor, calls: int) -> float:
    """One round: seconds a call, of the slowest rank."""
    dist.barrier()
    start = time.perf_counter()
    for _ in range(calls):
        dist.all_reduce(tensor, op=dist.ReduceOp.MAX)
    if tensor.device.type == "neuron":
        torch.neuron.synchronize()
    mine = torch.tensor((time.perf_counter() - start) / calls, dtype=torch.float64)
    dist.all_reduce(mine, op=dist.ReduceOp.MAX)
    return mine.item()


def check(tensor: torch.Tensor, rank: int, world: int) -> None:
    tensor.fill_(rank + 1)
    dist.all_reduce(tensor)
    expected = world * (world + 1) / 2
    assert bool((tensor == expected).all()), f"wrong all_reduce of {tensor.numel()} elements on {tensor.device}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--largest", type=int, default=64 * KIB * KIB)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json")
    args = parser.parse_args()
    dist.init_process_group("cpu:gloo,neuron:neuron")
    rank, world = dist.get_rank(), dist.get_world_size()
    rows = []
    size = KIB
    while size <= args.largest:
        host = torch.empty(size // 4)
        device = host.to("neuron")
        check(host, rank, world)
        check(device, rank, world)
        calls = max(3, min(300, 32 * KIB * KIB // size))
        gloo, neuron = [], []
        for _ in range(args.rounds):
            neuron.append(seconds(device, calls))
            gloo.append(seconds(host, calls))
        row = {
            "bytes": size,
            "neuron_us": statistics.median(neuron) * 1e6,
            "gloo_us": statistics.median(gloo) * 1e6,
            "ratio": statistics.median(g / n for g, n in zip(gloo, neuron, strict=True)),
        }
        rows.append(row)
        if rank == 0:
            print(
                f"all_reduce {size:>10} B: neuron {row['neuron_us']:>10.1f} us, gloo {row['gloo_us']:>10.1f} us, "
                f"{row['ratio']:.1f}x",
                flush=True,
            )
        size *= 4 if size < KIB * KIB else 16 if size == KIB * KIB else 4
    dist.destroy_process_group()
    if rank == 0 and args.json:
        with open(args.json, "w") as file:
            json.dump({"world_size": world, "cpus": os.cpu_count(), "rows": rows}, file, indent=1)


if __name__ == "__main__":
    main()
