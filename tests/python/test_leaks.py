"""Nothing is left behind by operators: host memory, device memory, descriptors, threads."""

from __future__ import annotations

import json

import pytest
from scripts import run_script

# The head of each program.
HOST_BYTES = """
import ctypes, gc, json
from pathlib import Path

def host_bytes():
    gc.collect()
    torch.neuron.synchronize()
    torch.neuron.empty_cache()
    _C.empty_host_cache()
    ctypes.CDLL("libc.so.6").malloc_trim(0)
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(status["RssAnon"].split()[0]) << 10
"""

PROGRAM = """
side = torch.neuron.Stream()
model = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.GELU(), torch.nn.Dropout(0.1)).to("neuron")
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
pinned = torch.ones(8, 16).pin_memory()

def one_round(number):
    x = pinned.to("neuron", non_blocking=True)
    loss = model(x).square().mean()  # forward, backward and optimizer: some 30 operators
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    event = torch.neuron.Event()
    event.record()
    side.wait_event(event)
    with torch.neuron.stream(side):  # shapes that change, memory that streams share
        y = torch.arange(float(1 + number % 97), device="neuron").exp().sum() + loss.detach()
        x.record_stream(side)
    torch.neuron.current_stream().wait_stream(side)
    views = x.view(-1)[::2].unsqueeze(0).expand(3, -1).clone()
    views.index_add_(0, torch.tensor([0], device="neuron"), views[:1].clone())
    count = (views > 0).nonzero().shape[0] + torch.unique(views).numel()  # drains
    sparse = torch.eye(3, device="neuron").to_sparse() @ x[:3, :3]
    torch.cat([views, views]).split(2)[0].sort().values.add_(number * 0.5)
    try:
        x @ x  # raises at the call
    except RuntimeError:
        pass
    if number % 10 == 0:  # raises at the wait
        torch.take(x, torch.tensor([10**6], device="neuron"))
        try:
            torch.neuron.synchronize()
        except (RuntimeError, IndexError):
            pass
    if number % 100 == 0:
        torch.neuron.memory._record_memory_history(max_entries=100)
        kept = x * 2
        torch.neuron.memory._snapshot()
        torch.neuron.memory._record_memory_history(None)
    return y.item() + count + sparse.sum().item()

def state():
    return {
        "host": host_bytes(),  # first: it waits and empties the caches
        "allocated": torch.neuron.memory_allocated(),
        "kept": torch.neuron.memory_stats()["kept_bytes"]["current"],
        "descriptors": len(list(Path("/proc/self/fd").iterdir())),
        "threads": len(list(Path("/proc/self/task").iterdir())),
    }

warm, rounds = WARM, ROUNDS
for number in range(warm):
    one_round(number)
before, counted = state(), sum(_C.op_counts().values()) + sum(_C.fallback_counts().values())
for number in range(rounds):
    one_round(number)
after = state()
ran = sum(_C.op_counts().values()) + sum(_C.fallback_counts().values()) - counted
print(json.dumps([before, after, ran]))
"""


MANY_SHAPES = """
def more_shapes_than_plans():
    for size in range(1200):
        x = torch.empty(size % 7 + 1, size, device="neuron")
        for _ in range(2):
            x = x + 1

for _ in range(8):
    more_shapes_than_plans()
before, evicted = host_bytes(), _C.plan_cache_stats()["evictions"]
for _ in range(4):
    more_shapes_than_plans()
print(json.dumps([host_bytes() - before, _C.plan_cache_stats()["evictions"] - evicted]))
"""


@pytest.mark.parametrize("inline", ["always", "never"])
def test_plans_that_are_given_up(inline: str) -> None:
    """A plan and its used commands hold each other: both go when the plan has lost its place."""
    grown, evicted = json.loads(run_script(HOST_BYTES + MANY_SHAPES, {"NEURON_EMU_INLINE": inline}))
    assert evicted >= 4000
    assert grown < 2 << 20  # some 2 KB for each plan would be 9 MB


def check(warm: int, rounds: int, operators: int, host_bytes: int) -> None:
    program = HOST_BYTES + PROGRAM.replace("WARM", str(warm)).replace("ROUNDS", str(rounds))
    before, after, ran = json.loads(run_script(program, timeout=3000))
    assert ran >= operators
    for kind in ("allocated", "kept", "descriptors", "threads"):
        assert after[kind] <= before[kind], (kind, before, after)
    assert after["host"] - before["host"] < host_bytes, (before, after)


def test_a_few_thousand_operators() -> None:
    check(warm=120, rounds=100, operators=4000, host_bytes=4 << 20)


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_a_hundred_thousand_operators() -> None:
    check(warm=300, rounds=2500, operators=100_000, host_bytes=8 << 20)
