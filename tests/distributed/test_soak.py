"""Long use leaves nothing behind in the process: memory, descriptors, threads, mappings."""

from __future__ import annotations

import pytest
from launch import run_ranks

HEAD = """
import os, torch, torch.distributed as dist
import torch_neuronx

def state():
    torch.neuron.synchronize()
    with open("/proc/self/status") as status:
        fields = dict(line.split(":", 1) for line in status)
    with open("/proc/self/maps") as maps:
        mappings = sum(1 for _ in maps)
    return {
        "MiB": int(fields["VmRSS"].split()[0]) >> 10,
        "threads": int(fields["Threads"]),
        "descriptors": len(os.listdir("/proc/self/fd")),
        "mappings": mappings,
        "device bytes": torch.neuron.memory_allocated(),
    }

def check(before, after, **allowed):
    for name, value in after.items():
        assert value <= before[name] + allowed.get(name, 0), (name, before, after)

dist.init_process_group("neuron")
x = torch.ones(2, device="neuron")
"""

COLLECTIVES = """
for _ in range(20_000):
    dist.all_reduce(x, op=dist.ReduceOp.MAX)
before = state()
for _ in range(COUNT):
    dist.all_reduce(x, op=dist.ReduceOp.MAX)
check(before, state(), MiB=16, mappings=8)
"""

GROUPS = """
def make():
    group = dist.new_group([0, 1])
    dist.all_reduce(x, op=dist.ReduceOp.MAX, group=group)
    dist.destroy_process_group(group)

for _ in range(20):
    make()
before = state()
for _ in range(COUNT):
    make()
check(before, state(), MiB=32, mappings=16, descriptors=2)
"""


@pytest.mark.parametrize(
    ("body", "count"),
    [
        pytest.param(COLLECTIVES, 50_000, id="collectives"),
        pytest.param(GROUPS, 100, id="groups"),
        pytest.param(
            COLLECTIVES, 1_000_000, id="a million collectives", marks=[pytest.mark.long, pytest.mark.timeout(900)]
        ),
        pytest.param(GROUPS, 1000, id="a thousand groups", marks=[pytest.mark.long, pytest.mark.timeout(900)]),
    ],
)
def test_nothing_grows(body: str, count: int) -> None:
    run_ranks((HEAD + body).replace("COUNT", str(count)), 2, timeout=800).check()
