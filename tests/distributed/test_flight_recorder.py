"""The flight recorder on real processes: what is dumped when, PyTorch's analyzer on it, and `neuron-emu explain`."""

from __future__ import annotations

import pickle
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from launch import Ranks, RunResult, base_environment, run_ranks, run_torchrun

# Makes the group with a short timeout and a few calls in common.
START = """
import datetime, os, sys, time, torch, torch.distributed as dist
rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
dist.init_process_group("neuron", timeout=datetime.timedelta(seconds=4))
value = torch.ones(4, device="neuron")
for _ in range(3):
    dist.all_reduce(value)
torch.neuron.synchronize()
"""
LEAVE = "\ndist.destroy_process_group()\n"


@pytest.fixture
def prefix(tmp_path: Path) -> str:
    return str(tmp_path / "dumps" / "trace_rank_")


def recorded(prefix: str, **more: str) -> dict[str, str]:
    return {"TORCH_FR_DUMP_TEMP_FILE": prefix, **more}


def dump_of(prefix: str, rank: int) -> dict[str, Any]:
    return pickle.loads(Path(f"{prefix}{rank}").read_bytes())


def ranks_with_dump(prefix: str) -> list[int]:
    return sorted(int(path.name.rpartition("_")[2]) for path in Path(prefix).parent.glob("*"))


def explain(prefix: str) -> tuple[int, str]:
    run = subprocess.run(
        [sys.executable, "-m", "neuron_emu.cli.main", "explain", str(Path(prefix).parent)],
        env=base_environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    return run.returncode, run.stdout + run.stderr


def analyze(prefix: str, *options: str) -> str:
    """What PyTorch's own analyzer says."""
    folder, name = str(Path(prefix).parent), Path(prefix).name
    # It prints tables by a package that torch does not bring, and -j fails without it.
    stand_in = Path(prefix).parent.parent / "stand_in"
    stand_in.mkdir(exist_ok=True)
    (stand_in / "tabulate.py").write_text("def tabulate(rows, headers=()): return '\\n'.join(map(str, rows))\n")
    environment = base_environment()
    environment["PYTHONPATH"] += f":{stand_in}"
    run = subprocess.run(
        [sys.executable, "-m", "torch.distributed.flight_recorder.fr_trace", "--prefix", name, *options, folder],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    return run.stdout + run.stderr


def line_of(script: str, text: str) -> int:
    return 1 + next(i for i, line in enumerate(script.splitlines()) if text in line)


def all_failed(run: RunResult) -> None:
    assert all(code not in (0, None) for code in run.returncodes), run.describe()


@pytest.mark.parametrize("world_size", [2, 4])
def test_mismatch(prefix: str, world_size: int) -> None:
    script = (
        START
        + """
if rank == 1:
    dist.broadcast(value, 0)
else:
    dist.all_reduce(value)
torch.neuron.synchronize()
"""
    )
    run = run_ranks(script, world_size, env=recorded(prefix))
    all_failed(run)
    assert ranks_with_dump(prefix) == list(range(world_size)), run.describe()
    status, text = explain(prefix)
    assert status == 1, text
    assert "3 calls agree, then call #4" in text
    assert f"rank 1: broadcast(float32[4], root 0) at script.py:{line_of(script, 'dist.broadcast')}" in text
    if world_size > 2:
        assert "rank 1 diverged first, at call #4" in text
    told = analyze(prefix)
    assert "Collective sequence number: 4 has errors" in told
    assert "COLLECTIVE_TYPE_MISMATCH" in told
    assert "sequence number: 3" not in told


def test_entries_are_those_of_pytorch(prefix: str) -> None:
    script = START + "dist.all_reduce(value, op=dist.ReduceOp.MAX if rank else dist.ReduceOp.SUM)\nvalue.cpu()"
    all_failed(run_ranks(script, 2, env=recorded(prefix)))
    dump = dump_of(prefix, 1)
    assert dump["version"] == "2.10"
    assert dump["pg_config"] == {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"}}
    assert dump["pg_status"]["0"]["last_enqueued_collective"] == 4
    assert dump["pg_status"]["0"]["last_completed_collective"] == 3
    first, *_, last = dump["entries"]
    assert first["record_id"] == 0
    assert first["process_group"] == ("0", "default_pg")
    assert first["profiling_name"] == "xccl:all_reduce"
    assert [first["collective_seq_id"], first["p2p_seq_id"], first["is_p2p"]] == [1, 0, False]
    assert first["input_sizes"] == first["output_sizes"] == [[4]]
    assert first["input_dtypes"] == first["output_dtypes"] == ["Float"]
    assert [first["state"], first["retired"], first["timeout_ms"]] == ["completed", True, 4000]
    assert first["time_created_ns"] <= first["time_discovered_started_ns"] <= first["time_discovered_completed_ns"]
    assert first["duration_ms"] > 0
    assert any(frame["filename"].endswith("script.py") and frame["name"] == "<module>" for frame in first["frames"])
    assert [last["state"], last["time_discovered_completed_ns"]] == ["started", None]
    assert "duration_ms" not in last
    assert last["neuron"]["reduce_op"] == "max"
    assert "all_reduce" in dump["neuron"]["errors"]["0"]
    # What the format has no place for, ours says.
    assert "max" in explain(prefix)[1]


def test_a_rank_that_does_not_come(prefix: str) -> None:
    script = START + "if rank != 1:\n    dist.all_reduce(value)\n    torch.neuron.synchronize()\ntime.sleep(60)"
    run = run_ranks(script, 3, env=recorded(prefix), timeout=40)
    assert run.returncodes[1] is None, run.describe()  # it slept on
    assert ranks_with_dump(prefix) == [0, 1, 2], run.describe()
    status, text = explain(prefix)
    assert status == 1
    assert "rank 1 diverged first: it never reached call #4" in text
    line = line_of(script, "if rank != 1") + 1
    assert f"ranks 0, 2: all_reduce(float32[4], sum) at script.py:{line} (<module>) (waiting)" in text
    told = analyze(prefix)
    assert "Not all ranks joining collective, sequence number: 4" in told
    assert "missing ranks: {1}" in told


def test_a_killed_rank(prefix: str) -> None:
    script = START + "print('here', flush=True)\ntime.sleep(2 * (rank == 1))\ndist.all_reduce(value)\nvalue.cpu()"
    with Ranks(script, 3, env=recorded(prefix)) as ranks:
        for rank in range(3):
            ranks.wait_for_line(rank, "here")
        ranks.processes[1].send_signal(signal.SIGKILL)
        run = ranks.wait(40)
    all_failed(run)
    assert ranks_with_dump(prefix) == [0, 2], run.describe()
    status, text = explain(prefix)
    assert status == 1
    assert "rank 1 diverged first: no dump of it, and the others wait in call #4" in text
    analyze(prefix, "--allow-incomplete-ranks")


def test_a_rank_that_raises(prefix: str) -> None:
    script = START + "if rank == 0:\n    raise ValueError('no more data')\ndist.all_reduce(value)\nvalue.cpu()"
    run = run_ranks(script, 2, env=recorded(prefix))
    all_failed(run)
    status, text = explain(prefix)
    assert status == 1, run.describe()
    assert "rank 0 diverged first: it never reached call #4" in text
    assert "this rank ended by ValueError: no more data" in text


def test_survivors_under_torchrun(prefix: str) -> None:
    """torchrun ends those that have not noticed within a tenth of a second."""
    script = START + (
        "if rank == 3:\n    time.sleep(60)\n"
        "dist.all_reduce(value) if rank else dist.barrier()\ntorch.neuron.synchronize()"
    )
    run = run_torchrun(script, 4, env=recorded(prefix))
    assert run.returncode not in (0, None), run.describe()
    assert ranks_with_dump(prefix) == [0, 1, 2, 3], run.describe()
    status, text = explain(prefix)
    assert status == 1
    assert "call #4" in text


def test_messages(prefix: str) -> None:
    script = (
        START
        + """
if rank == 0:
    dist.send(value, 1)
    dist.recv(value, 1)
else:
    dist.recv(value, 0)
    dist.recv(value, 0)
value.cpu()
"""
    )
    all_failed(run_ranks(script, 2, env=recorded(prefix)))
    status, text = explain(prefix)
    assert status == 1
    assert f"rank 0: #2 recv(float32[4], from rank 1) at script.py:{line_of(script, 'dist.recv(value, 1)')}" in text
    assert "rank 1 never sends it" in text
    assert "They wait for each other" in text
    names = [entry["profiling_name"] for entry in dump_of(prefix, 1)["entries"]]
    assert names[-2:] == ["xccl:recv 1<-0"] * 2
    analyze(prefix, "-j")


ON_REQUEST = (
    START
    + """
from neuron_emu.distributed import dump_flight_recorder, failure_dump_path
pair = dist.new_group([0, 1])
dist.all_gather_into_tensor(torch.empty(8, device="neuron"), value)
dist.all_gather([torch.empty(4, device="neuron") for _ in range(2)], value)
dist.reduce_scatter_tensor(torch.empty(2, device="neuron"), value)
dist.all_to_all_single(torch.empty(4, device="neuron"), value)
dist.scatter(torch.empty(4, device="neuron"), [value, value] if rank == 0 else None, src=0)
dist.gather(value, [torch.empty(4, device="neuron") for _ in range(2)] if rank == 0 else None, dst=0)
dist.reduce(value, 1)
dist.broadcast(value, 1)
dist.all_reduce_coalesced([value, value[:2]])
dist.all_gather_coalesced([[torch.empty(4, device="neuron")] for _ in range(2)], [value])
dist.all_reduce(value, group=pair)
dist.barrier()
ops = [dist.P2POp(dist.isend, value, 1 - rank), dist.P2POp(dist.irecv, value, 1 - rank)]
for work in dist.batch_isend_irecv(ops):
    work.wait()
torch.neuron.synchronize()
assert not os.path.exists(failure_dump_path()), failure_dump_path()
dump = dump_flight_recorder(failure_dump_path())
assert open(failure_dump_path(), "rb").read() == dump
import pickle
assert pickle.loads(dump_flight_recorder(only_active=True))["entries"] == []
assert "frames" not in pickle.loads(dump_flight_recorder(include_stack_traces=False))["entries"][0]
assert "entries" not in pickle.loads(dump_flight_recorder(include_collectives=False))
"""
    + LEAVE
)


def test_on_request(prefix: str) -> None:
    """Every call is in the dump, and both analyzers find nothing wrong with them."""
    run_ranks(ON_REQUEST, 2, env=recorded(prefix)).check()
    status, text = explain(prefix)
    assert status == 0, text
    assert "All ranks agree:" in text
    told = analyze(prefix, "-j")
    assert "all_gather" in told
    entries = dump_of(prefix, 0)["entries"]
    assert entries[-1]["profiling_name"] == "xccl:coalesced"
    assert [entry["is_p2p"] for entry in entries[-3:]] == [True] * 3
    # PyTorch's analyzer cannot match an exchange of messages, NCCL's neither.
    for rank in range(2):
        dump = dump_of(prefix, rank)
        dump["entries"] = [entry for entry in dump["entries"] if not entry["is_p2p"]]
        Path(f"{prefix}{rank}").write_bytes(pickle.dumps(dump))
    told = analyze(prefix)
    for word in ("error", "mismatch", "Not all ranks"):
        assert word not in told.lower(), told


@pytest.mark.parametrize("variable", ["TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE"])
def test_the_ring_is_bounded(prefix: str, variable: str) -> None:
    script = (
        START
        + """
for _ in range(20):
    dist.all_reduce(value)
torch.neuron.synchronize()
from neuron_emu.distributed import dump_flight_recorder, failure_dump_path
dump_flight_recorder(failure_dump_path())
"""
        + LEAVE
    )
    run_ranks(script, 2, env=recorded(prefix, **{variable: "8"})).check()
    numbers = [(entry["record_id"], entry["collective_seq_id"]) for entry in dump_of(prefix, 0)["entries"]]
    assert numbers == [(number, number + 1) for number in range(15, 23)]
    status, text = explain(prefix)
    assert status == 0
    assert "8 collectives" in text


def test_no_tensor_is_held(prefix: str) -> None:
    script = (
        START
        + """
import gc, weakref
before = torch.neuron.memory_allocated()
big = torch.ones(1 << 20, device="neuron")
alive = weakref.ref(big)
dist.all_reduce(big)
torch.neuron.synchronize()
del big
gc.collect()
assert alive() is None
assert torch.neuron.memory_allocated() == before
"""
        + LEAVE
    )
    run_ranks(script, 2, env=recorded(prefix)).check()


def test_off(prefix: str) -> None:
    script = START + (
        "import pickle\nfrom neuron_emu.distributed import dump_flight_recorder\n"
        "assert pickle.loads(dump_flight_recorder())['entries'] == []\n"
        "dist.all_reduce(value) if rank else dist.barrier()\ntorch.neuron.synchronize()"
    )
    run = run_ranks(script, 2, env=recorded(prefix, TORCH_FR_BUFFER_SIZE="0"))
    all_failed(run)
    assert "AssertionError" not in run.stderr
    assert not Path(prefix).parent.exists(), ranks_with_dump(prefix)


def test_leaving_and_aborting_on_purpose_are_no_failures(prefix: str) -> None:
    run_ranks(START + LEAVE, 2, env=recorded(prefix)).check()
    script = START + "dist.distributed_c10d._abort_process_group()\n"
    run_ranks(script, 1, env=recorded(prefix)).check()
    assert not Path(prefix).parent.exists(), ranks_with_dump(prefix)


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    """It is said, and the failure is what the program sees."""
    (tmp_path / "file").write_text("")
    script = START + "dist.all_reduce(value) if rank else dist.barrier()\ntorch.neuron.synchronize()"
    run = run_ranks(script, 2, env=recorded(str(tmp_path / "file" / "trace_rank_")))
    all_failed(run)
    assert "the flight recorder cannot write" in run.stderr
    assert "DistBackendError" in run.stderr


def test_a_malformed_size_is_an_error() -> None:
    run = run_ranks(START, 1, env={"TORCH_FR_BUFFER_SIZE": "many"})
    all_failed(run)
    assert "TORCH_FR_BUFFER_SIZE=many" in run.stderr
