"""Processes that are started and killed at random leave nothing behind, and their peers end."""

from __future__ import annotations

import os
import random
import re
import signal
import time
from pathlib import Path

from launch import Ranks

SCRIPT = """
import datetime, torch, torch.distributed as dist
dist.init_process_group("neuron", timeout=datetime.timedelta(seconds=20))
tensor = torch.ones(1 << 18, device="neuron")
print("started", flush=True)
while True:
    dist.all_reduce(tensor, op=dist.ReduceOp.MAX)
    tensor.sum().item()
"""


def _state() -> dict[str, set[str]]:
    sockets = re.findall(r"@\S*neuron\S*|\S*/\S*neuron\S*", Path("/proc/net/unix").read_text())
    shared = {entry.name for entry in Path("/dev/shm").iterdir()}
    return {"unix sockets": set(sockets), "shared memory": shared}


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"
    except OSError:
        return False


def test_ten_processes_killed_at_random() -> None:
    chance = random.Random(0)
    before = _state()
    pids: list[int] = []
    for _ in range(5):
        with Ranks(SCRIPT, 2) as ranks:
            pids += [process.pid for process in ranks.processes]
            # Some are killed while they join, some in the middle of a collective.
            if chance.random() < 0.6:
                ranks.wait_for_line(0, "started")
            else:
                time.sleep(chance.uniform(0.5, 3.0))
            victim = ranks.processes[chance.randrange(2)]
            os.killpg(victim.pid, signal.SIGKILL)
            # The Store's own retries last up to a minute when its server, rank 0, never was.
            result = ranks.wait(120)
            assert None not in result.returncodes, result.describe()
            assert 0 not in result.returncodes, result.describe()
    assert not [pid for pid in pids if _runs(pid)]
    after = _state()
    for kind, names in after.items():
        assert names <= before[kind], f"left behind {kind}: {names - before[kind]}"


def test_a_killed_rank_is_named() -> None:
    with Ranks(SCRIPT, 3) as ranks:
        for rank in range(3):
            ranks.wait_for_line(rank, "started")
        pid = ranks.processes[1].pid
        os.kill(pid, signal.SIGKILL)
        killed = time.monotonic()
        result = ranks.wait(30)
        ended = time.monotonic() - killed
    assert result.returncodes[1] == -signal.SIGKILL, result.describe()
    for rank in (0, 2):
        assert result.returncodes[rank] not in (0, None), result.describe()
        assert "rank 1" in result.ranks[rank].stderr and str(pid) in result.ranks[rank].stderr, result.describe()
    # The promise is 5 s; the rest is the time that a loaded machine takes to end two interpreters.
    assert ended < 20
