"""Rank side of test_profiler.py: what torch's profiler and its traces know of the process group's calls."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

import torch_neuronx  # noqa: F401


def trace(calls: Callable[[], None]) -> list[dict[str, Any]]:
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True) as profiler:
        calls()
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "trace.json"
        profiler.export_chrome_trace(str(path))
        return list(json.loads(path.read_text())["traceEvents"])


def comms(calls: Callable[[], None]) -> list[dict[str, Any]]:
    return [event["args"] for event in trace(calls) if event.get("name") == "record_param_comms"]


def check_titles(rank: int, world_size: int) -> None:
    tensor = torch.ones(4, device="neuron")
    names = {event.get("name") for event in trace(lambda: dist.all_reduce(tensor))}
    assert "neuron:all_reduce" in names, names


def check_all_reduce_and_its_wait(rank: int, world_size: int) -> None:
    tensor = torch.ones(6, dtype=torch.bfloat16, device="neuron")

    def calls() -> None:
        dist.all_reduce(tensor, async_op=True)
        dist.all_reduce(tensor, async_op=True).wait()

    first, second, waited = comms(calls)
    for call in first, second:
        assert call["Collective name"] == "allreduce" and call["dtype"] == "BFloat16", call
        assert call["In msg nelems"] == call["Out msg nelems"] == 6, call
        assert call["Process Group Name"] == "0" and call["Process Group Description"] == "default_pg", call
        assert call["Process Group Ranks"] == str(list(range(world_size))), call
        assert call["Group size"] == world_size and call["Rank"] == rank, call
    assert second["Seq"] == first["Seq"] + 1, (first, second)
    assert waited["Collective name"] == "wait" and waited["Seq"] == second["Seq"], waited


def check_group_of_every_other_rank(rank: int, world_size: int) -> None:
    ranks = list(range(0, world_size, 2))
    group = dist.new_group(ranks, group_desc="every other")
    if rank not in ranks:
        return
    out = torch.zeros(3 * len(ranks), device="neuron")
    tensor = torch.ones(3, device="neuron")
    call = comms(lambda: dist.all_gather_into_tensor(out, tensor, group=group))[0]
    assert call["Collective name"] == "_allgather_base" and call["Process Group Description"] == "every other", call
    assert call["In msg nelems"] == 3 and call["Out msg nelems"] == 3 * len(ranks), call
    assert call["Global rank start"] == 0 and call["Global rank stride"] == 2, call
    assert call["Group size"] == len(ranks), call


def check_all_to_all_splits(rank: int, world_size: int) -> None:
    """Rank r sends r + 1 rows to each."""
    given, got = [rank + 1] * world_size, [other + 1 for other in range(world_size)]
    source = torch.ones(sum(given), 2, device="neuron")
    target = torch.zeros(sum(got), 2, device="neuron")
    call = comms(lambda: dist.all_to_all_single(target, source, got, given))[0]
    assert call["Collective name"] == "all_to_all", call
    assert call["In msg nelems"] == 2 * sum(given) and call["Out msg nelems"] == 2 * sum(got), call
    assert call["In split size"] == str(given) and call["Out split size"] == str(got), call


def check_barrier_and_messages(rank: int, world_size: int) -> None:
    tensor = torch.ones(5, dtype=torch.int32, device="neuron")

    def calls() -> None:
        dist.barrier()
        if rank == 0:
            dist.send(tensor, dst=2)
        elif rank == 2:
            dist.recv(tensor, src=0)

    names = {call["Collective name"]: call for call in comms(calls)}
    assert names["barrier"]["In msg nelems"] == 0, names
    if rank == 0:
        assert names["send"]["Dst Rank"] == 2 and names["send"]["dtype"] == "Int", names
    elif rank == 2:
        assert names["recv"]["Src Rank"] == 0 and names["recv"]["Out msg nelems"] == 5, names


def check_nothing_without_a_profiler(rank: int, world_size: int) -> None:
    """A call that began before the profiler has no record, and its wait() has none either."""
    tensor = torch.ones(4, device="neuron")
    work = dist.all_reduce(tensor, async_op=True)
    assert comms(work.wait) == []
