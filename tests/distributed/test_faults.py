"""Every way a collective goes wrong, provoked with real processes: the right message, in time, exit != 0, nothing left.

Two ranks under a launcher of ours and under torchrun, which kills the survivors: the report must have reached stderr.
"""

from __future__ import annotations

import os
import re
import signal
import textwrap
import time

import pytest
from launch import Ranks, run_ranks, run_torchrun

HEAD = """
import datetime, os, signal, sys, time, torch, torch.distributed as dist
import torch_neuronx
dist.init_process_group("neuron", timeout=datetime.timedelta(seconds={timeout}))
rank = dist.get_rank()
x = torch.ones(8, device="neuron")
dist.all_reduce(x)
torch.neuron.synchronize()

def fails(call):
    started = time.monotonic()
    try:
        call()
        torch.neuron.synchronize()
    except Exception as error:
        print(f"rank {{rank}} failed after {{time.monotonic() - started:.2f} s", flush=True)
        print(error, file=sys.stderr, flush=True)
        sys.exit(3)
    print(f"rank {{rank}} went on", flush=True)
"""


def program(body: str, timeout: int = 60) -> str:
    return HEAD.replace("{timeout}", str(timeout)).replace("{{", "{").replace("}}", "}") + textwrap.dedent(body)


# What the ranks call, and what the report must say about it. Lines of the report name rank, call and source line.
MISMATCHES = {
    "operation": (
        "fails(lambda: dist.all_reduce(x) if rank == 0 else dist.broadcast(x, 0))",
        [
            "the operations are not the same",
            "rank 0: all_reduce(float32[8], sum)",
            "rank 1: broadcast(float32[8], root 0)",
        ],
    ),
    "longest_name": (
        """
        def gather():
            with dist._coalescing_manager():
                dist.all_gather_into_tensor(torch.zeros(16, device="neuron"), x)
        fails(gather if rank == 0 else lambda: dist.broadcast(x, 0))
        """,
        ["rank 0: all_gather_into_tensor_coalesced(float32[8]", "rank 1: broadcast(float32[8], root 0)"],
    ),
    "order": (
        """
        y = torch.ones(4, device="neuron")
        calls = [lambda: dist.all_reduce(x), lambda: dist.all_reduce(y)]
        def both():
            for call in calls if rank == 0 else reversed(calls):
                call()
        fails(both)
        """,
        ["the numbers of elements are not the same", "rank 0: all_reduce(float32[8]", "rank 1: all_reduce(float32[4]"],
    ),
    "dtype": (
        "fails(lambda: dist.all_reduce(x if rank == 0 else x.long()))",
        ["the dtypes are not the same", "rank 0: all_reduce(float32[8]", "rank 1: all_reduce(int64[8]"],
    ),
    "count": (
        "fails(lambda: dist.all_reduce(x[:8 - rank]))",
        ["the numbers of elements are not the same", "float32[8]", "float32[7]"],
    ),
    "rows": (
        "fails(lambda: dist.all_reduce(torch.ones(100 + 100 * rank, 8, device='neuron')))",
        ["the numbers of elements are not the same", "float32[800]", "float32[1600]"],
    ),
    "gathered_dtype": (
        """
        y = torch.ones(8, dtype=torch.int32, device="neuron") if rank else x
        fails(lambda: dist.all_gather_into_tensor(torch.zeros(16, dtype=y.dtype, device="neuron"), y))
        """,
        ["the dtypes are not the same", "float32[8]", "int32[8]"],
    ),
    "root": (
        "fails(lambda: dist.broadcast(x, rank))",
        ["the roots are not the same", "root 0", "root 1"],
    ),
    "reduce_op": (
        "fails(lambda: dist.all_reduce(x, op=dist.ReduceOp.MAX if rank else dist.ReduceOp.SUM))",
        ["the reduce ops are not the same", "sum", "max"],
    ),
    "splits": (
        """
        out = torch.empty(8 if rank == 0 else 7, device="neuron")
        fails(lambda: dist.all_to_all_single(out, x, [4, 4] if rank == 0 else [3, 4], [4, 4]))
        """,
        ["rank 0 gives 4 elements to rank 1, which expects 3"],
    ),
}


@pytest.mark.parametrize("name", MISMATCHES)
def test_mismatch(name: str) -> None:
    """Field case 17: found without a debug mode, told on all ranks, which then end cleanly. Field case 07: splits."""
    body, words = MISMATCHES[name]
    run = run_ranks(program(body), 2)
    assert run.returncodes == [3, 3], run.describe()
    for rank in run.ranks:
        found = re.search(r"failed after ([0-9.]+) s", rank.stdout)
        assert found, run.describe()
        # Within a second of the last arrival; the rest is for a machine that is busy with other tests.
        assert float(found[1]) < 10, run.describe()
        for word in ["call #2 differs between the ranks", *words]:
            assert word in rank.stderr, f"{word!r} is missing\n{run.describe()}"
        assert len(re.findall(r"rank [01]: \S+\(.*script.py:\d+", rank.stderr)) >= 2, run.describe()


def test_mismatch_under_torchrun() -> None:
    body, words = MISMATCHES["operation"]
    run = run_torchrun(program(body), 2)
    assert run.returncode not in (0, None), run.describe()
    for word in words:
        assert word in run.stderr, run.describe()


CROSSWISE = """
first, second = dist.new_group([0, 1]), dist.new_group([0, 1])
def both():
    for group in (first, second) if rank == 0 else (second, first):
        dist.all_reduce(x, group=group)
fails(both)
"""


def test_crosswise_waits_between_groups() -> None:
    run = run_ranks(program(CROSSWISE), 2)
    assert run.returncodes == [3, 3], run.describe()
    assert re.search(
        r"ranks wait crosswise: rank (\d) waits here for rank (\d), which waits in call #1 of group '\d+' for rank \1",
        run.stderr,
    ), run.describe()


def test_a_rank_that_never_comes() -> None:
    body = """
    if rank == 1:
        time.sleep(8)
        os._exit(0)
    fails(lambda: dist.all_reduce(x))
    """
    run = run_ranks(program(body, timeout=3), 2)
    assert run.returncodes[0] == 3, run.describe()
    for word in (
        "all_reduce #2: not all ranks came within the timeout of 3.0 s",
        "rank 1: not here; its last call was #1 all_reduce",
    ):
        assert word in run.ranks[0].stderr, run.describe()


def test_each_group_has_its_own_timeout() -> None:
    """Field case 15: for collectives, messages and barriers; told are the call, its number and who is missing."""
    body = """
    def late(call, timeout, words):
        group = dist.new_group([0, 1], timeout=datetime.timedelta(seconds=timeout)) if timeout else None
        if rank == 1:
            return
        started = time.monotonic()
        try:
            call(group)
            torch.neuron.synchronize()
        except Exception as error:
            assert words in str(error) and "rank 1" in str(error), error
        else:
            raise AssertionError(words)
        # Not before its time, and long before the other rank ends.
        assert (timeout or 4) - 0.1 <= time.monotonic() - started < 30, time.monotonic() - started

    missing = "not all ranks came within the timeout of"
    late(lambda group: dist.all_reduce(x, group=group), 1, f"all_reduce #1: {missing} 1.0 s")
    late(lambda group: dist.barrier(group=group), 2, f"barrier #1: {missing} 2.0 s")
    late(lambda group: dist.recv(x, src=1, group=group), 3, "3.0 s")
    late(lambda group: dist.all_reduce(x), None, f"all_reduce #2: {missing} 4.0 s")
    print("told", flush=True)
    if rank == 1:
        time.sleep(60)
    os._exit(0)
    """
    with Ranks(program(body, timeout=4), 2, env={"NEURON_EMU_LIMITS": "extended"}) as ranks:
        ranks.processes[0].wait(60)
        run = ranks.wait(0)
    assert run.returncodes[0] == 0 and "told" in run.ranks[0].stdout, run.describe()


DEATHS = {
    "killed": ("os.kill(os.getpid(), signal.SIGKILL)", "killed by signal 9 (Killed)"),
    "exception": ("raise RuntimeError('out of ideas')", "exited with code 1"),
    "exit_code": ("os._exit(7)", "exited with code 7"),
    "exit_0": ("os._exit(0)", "exited with code 0"),
}


@pytest.mark.parametrize("name", DEATHS)
@pytest.mark.parametrize("launcher", ["own", "torchrun"])
def test_a_rank_that_dies(name: str, launcher: str) -> None:
    deed, how = DEATHS[name]
    body = f"""
    print(f"pid {{rank}} {{os.getpid()}}", flush=True)
    if rank == 1:
        time.sleep(1)  # rank 0 waits by then
        {deed}
    fails(lambda: dist.all_reduce(x))
    """
    if launcher == "own":
        run = run_ranks(program(body), 2)
        assert run.returncodes[0] == 3, run.describe()
        output, report = run.stdout, run.ranks[0].stderr
        found = re.search(r"failed after ([0-9.]+) s", output)
        assert found, run.describe()
        assert float(found[1]) < 15, run.describe()
        shown = run.describe()
    else:
        done = run_torchrun(program(body), 2)
        assert done.returncode not in (0, None), done.describe()
        output, report, shown = done.stdout, done.stderr, done.describe()
    pid = re.search(r"pid 1 (\d+)", output)
    assert pid, shown
    # A rank that leaves in an orderly way says so itself; else the kernel tells how it ended.
    words = rf"rank 1 (has ended \(pid {pid[1]}, ({re.escape(how)}|ended)\)|has left the group)"
    assert re.search(words, report), shown
    if name in ("killed", "exit_code"):
        assert pid[1] in report, shown


def test_a_stopped_rank_ends_by_timeout() -> None:
    body = """
    print("ready", flush=True)
    fails(lambda: [dist.all_reduce(x) for _ in range(10**9)])
    """
    with Ranks(program(body, timeout=3), 2) as ranks:
        for rank in range(2):
            ranks.wait_for_line(rank, "ready")
        time.sleep(0.2)
        os.kill(ranks.processes[1].pid, signal.SIGSTOP)
        ranks.processes[0].wait(60)
        run = ranks.wait(0)
    assert run.returncodes[0] == 3, run.describe()
    assert "timeout of 3.0 s" in run.ranks[0].stderr, run.describe()
    assert "rank 1" in run.ranks[0].stderr, run.describe()
