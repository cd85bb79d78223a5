"""Collectives through torch, neuron against gloo, both in the same ranks, in turn. Run it under torchrun:

    torchrun --standalone --nproc-per-node=2 bench/torch_collectives_bench.py [--op NAME ...] [--smallest BYTES]
        [--largest BYTES] [--rounds COUNT] [--json FILE]

A size is that of the larger of one rank's input and output. Prints, for each operation and size, the slowest rank's
median time on either side, and the median over the rounds of gloo's time divided by neuron's. Results are checked.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.distributed as dist

import torch_neuronx  # noqa: F401

KIB = 1024
MIB = KIB * KIB
SIZES = [KIB, 4 * KIB, 16 * KIB, 64 * KIB, 256 * KIB, MIB, 16 * MIB, 64 * MIB, 256 * MIB]
MAX = dist.ReduceOp.MAX


class Buffers:
    """One rank's tensors on one device, fp32. `whole` and `other` have a part for each rank, `part` is one part."""

    def __init__(self, device: str, nbytes: int) -> None:
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        elements = max(nbytes // 4 // self.world, 1)
        self.whole, self.other = (torch.zeros(elements * self.world, device=device) for _ in range(2))
        self.part = torch.zeros(elements, device=device)
        self.is_root = self.rank == 0

    def parts(self) -> list[torch.Tensor] | None:
        """The root's parts for the rooted operations."""
        return list(self.whole.chunk(self.world)) if self.is_root else None

    def fill(self) -> None:
        for tensor in (self.whole, self.other, self.part):
            tensor.fill_(self.rank + 1)


def equals(tensor: torch.Tensor, value: int) -> bool:
    return bool((tensor == value).all())


def one_of_each_rank(tensor: torch.Tensor, world: int) -> bool:
    return all(equals(part, source + 1) for source, part in enumerate(tensor.chunk(world)))


def there_and_back(b: Buffers) -> None:
    peer = b.rank ^ 1
    if peer >= b.world:
        return
    for sender in (0, 1):
        dist.send(b.whole, peer) if b.rank % 2 == sender else dist.recv(b.whole, peer)


@dataclass(frozen=True)
class Operation:
    run: Callable[[Buffers], object]
    is_right: Callable[[Buffers], bool]  # after fill() and one run()
    messages: int = 1  # of the buffer's size, in a run


OPERATIONS = {
    "all_reduce": Operation(lambda b: dist.all_reduce(b.whole, op=MAX), lambda b: equals(b.whole, b.world)),
    "all_gather": Operation(
        lambda b: dist.all_gather_into_tensor(b.whole, b.part), lambda b: one_of_each_rank(b.whole, b.world)
    ),
    "reduce_scatter": Operation(
        lambda b: dist.reduce_scatter_tensor(b.part, b.whole, op=MAX), lambda b: equals(b.part, b.world)
    ),
    "all_to_all": Operation(
        lambda b: dist.all_to_all_single(b.other, b.whole), lambda b: one_of_each_rank(b.other, b.world)
    ),
    "broadcast": Operation(lambda b: dist.broadcast(b.whole, src=0), lambda b: equals(b.whole, 1)),
    "reduce": Operation(
        lambda b: dist.reduce(b.whole, dst=0, op=MAX), lambda b: not b.is_root or equals(b.whole, b.world)
    ),
    "gather": Operation(
        lambda b: dist.gather(b.part, b.parts(), dst=0), lambda b: not b.is_root or one_of_each_rank(b.whole, b.world)
    ),
    "scatter": Operation(lambda b: dist.scatter(b.part, b.parts(), src=0), lambda b: equals(b.part, 1)),
    "send_recv": Operation(there_and_back, lambda b: b.rank ^ 1 >= b.world or equals(b.whole, b.rank // 2 * 2 + 1), 2),
}


def seconds(operation: Operation, buffers: Buffers, calls: int) -> float:
    """One round: seconds a call, of the slowest rank."""
    dist.barrier()
    start = time.perf_counter()
    for _ in range(calls):
        operation.run(buffers)
    if buffers.whole.device.type == "neuron":
        torch.neuron.synchronize()
    mine = torch.tensor((time.perf_counter() - start) / calls / operation.messages, dtype=torch.float64)
    dist.all_reduce(mine, op=MAX)
    return mine.item()


def measure(name: str, nbytes: int, rounds: int) -> dict[str, object]:
    operation = OPERATIONS[name]
    sides = {"neuron": Buffers("neuron", nbytes), "gloo": Buffers("cpu", nbytes)}
    for side, buffers in sides.items():
        buffers.fill()
        operation.run(buffers)
        assert operation.is_right(buffers), f"wrong {name} of {nbytes} bytes on {side}"
    calls = max(4, min(200, 16 * MIB // nbytes))
    times: dict[str, list[float]] = {side: [] for side in sides}
    for _ in range(rounds):
        for side, buffers in sides.items():
            times[side].append(seconds(operation, buffers, calls))
    ratios = [gloo / neuron for gloo, neuron in zip(times["gloo"], times["neuron"], strict=True)]
    return {
        "op": name,
        "bytes": nbytes,
        "neuron_us": statistics.median(times["neuron"]) * 1e6,
        "gloo_us": statistics.median(times["gloo"]) * 1e6,
        "ratio": statistics.median(ratios),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--op", nargs="+", choices=OPERATIONS, default=list(OPERATIONS))
    parser.add_argument("--smallest", type=int, default=KIB)
    parser.add_argument("--largest", type=int, default=256 * MIB)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json")
    args = parser.parse_args()
    dist.init_process_group("cpu:gloo,neuron:neuron")
    rows = []
    for name in args.op:
        for nbytes in SIZES:
            if not args.smallest <= nbytes <= args.largest:
                continue
            row = measure(name, nbytes, args.rounds)
            rows.append(row)
            if dist.get_rank() == 0:
                print(
                    f"{name:<14} {nbytes:>10} B: neuron {row['neuron_us']:>10.1f} us, gloo {row['gloo_us']:>11.1f} us,"
                    f" {row['ratio']:>5.1f}x",
                    flush=True,
                )
    world = dist.get_world_size()
    is_first = dist.get_rank() == 0
    dist.destroy_process_group()
    if is_first and args.json:
        with open(args.json, "w") as file:
            json.dump({"world_size": world, "cpus": os.cpu_count(), "rows": rows}, file, indent=1)


if __name__ == "__main__":
    main()
