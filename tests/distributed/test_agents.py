"""Jobs under torchrun's agents: several of them on one host, a restart after a failure, and the end of an agent."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from launch import base_environment, free_port


class Agent:
    """torchrun with its workers."""

    def __init__(self, script: Path, *options: str, env: dict[str, str | None] | None = None) -> None:
        self.log = script.with_name(f"agent{time.monotonic_ns()}.log")
        with open(self.log, "wb") as out:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "torch.distributed.run", *options, str(script)],
                env=base_environment(env),
                stdout=out,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )

    def told(self) -> str:
        return self.log.read_text(errors="replace")

    def workers(self) -> list[int]:
        return [int(pid) for pid in re.findall(r"worker (\d+)", self.told())]

    def wait_until(self, pattern: str, count: int, timeout: float = 90) -> None:
        deadline = time.monotonic() + timeout
        while len(re.findall(pattern, self.told())) < count:
            assert self.process.poll() is None, self.told()[-6000:]
            assert time.monotonic() < deadline, self.told()[-6000:]
            time.sleep(0.05)

    def kill(self) -> None:
        # First as a user would: only the agent knows workers that have told nothing yet.
        self.process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(45)
        for pid in [self.process.pid, *self.workers()]:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()


@contextlib.contextmanager
def agents(*started: Agent) -> Iterator[None]:
    try:
        yield
    finally:
        for agent in started:
            agent.kill()


def runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


ACROSS = """
import os, torch, torch.distributed as dist
dist.init_process_group("neuron")
rank, world = dist.get_rank(), dist.get_world_size()
assert (world, int(os.environ["LOCAL_WORLD_SIZE"])) == (4, 2)
core = torch.neuron.get_device_properties(torch.neuron.current_device()).logical_core
assert core == int(os.environ["LOCAL_RANK"]), core  # each agent has cores of its own
for count in (3, 500_000):
    value = torch.full((count,), rank + 1.0, device="neuron")
    dist.all_reduce(value)
    assert value.min().item() == value.max().item() == 10.0
    whole = torch.zeros(4 * count, device="neuron")
    dist.all_gather_into_tensor(whole, torch.full((count,), float(rank), device="neuron"))
    assert torch.equal(whole.cpu(), torch.arange(4.0).repeat_interleave(count))
    # With the rank of the other agent that has the same local rank.
    target = torch.zeros(count, device="neuron")
    peer = (rank + 2) % 4
    source = torch.full((count,), float(rank), device="neuron")
    for work in dist.batch_isend_irecv([dist.P2POp(dist.isend, source, peer), dist.P2POp(dist.irecv, target, peer)]):
        work.wait()
    assert target.min().item() == target.max().item() == float(peer)
pair = dist.new_group([1, 2])
if rank in (1, 2):
    value = torch.full((5,), float(rank), device="neuron")
    dist.all_reduce(value, group=pair)
    assert value.tolist() == [3.0] * 5
dist.barrier()
print(f"rank {rank} of {world}\\n", end="", flush=True)
dist.destroy_process_group()
"""


def test_two_agents_on_one_host(tmp_path: Path) -> None:
    """Field case 59: nnodes=2, collectives and messages between workers of both; the host's name is 127.0.1.1."""
    script = tmp_path / "across.py"
    script.write_text(ACROSS)
    port = free_port()
    both = [
        Agent(
            script,
            "--nnodes=2",
            f"--node-rank={node}",
            "--nproc-per-node=2",
            "--master-addr=127.0.1.1",
            f"--master-port={port}",
            env={"NEURON_EMU_LIMITS": "extended"},
        )
        for node in range(2)
    ]
    with agents(*both):
        codes = [agent.process.wait(120) for agent in both]
        told = "".join(agent.told() for agent in both)
    assert codes == [0, 0], told[-8000:]
    assert sorted(re.findall(r"rank (\d) of 4", told)) == ["0", "1", "2", "3"], told


RESTARTED = """
import os, pathlib, sys, torch, torch.distributed as dist
dist.init_process_group("neuron")
rank, attempt = dist.get_rank(), int(os.environ["TORCHELASTIC_RESTART_COUNT"])
saved = pathlib.Path(os.environ["FOLDER"]) / "saved.pt"
step, weights = 0, torch.zeros(4, device="neuron")
if saved.exists():
    state = torch.load(saved, map_location="neuron")
    step, weights = state["step"], state["weights"]
assert (attempt, step) in ((0, 0), (1, 3)), (attempt, step)
dist.barrier()  # collectives are asynchronous: without it rank 0 is at its checkpoint before a late rank looks for one
while step < 6:
    gradient = torch.full((4,), rank + 1.0, device="neuron")
    dist.all_reduce(gradient)
    weights += gradient
    step += 1
    if step == 3 and attempt == 0:
        if rank == 0:
            torch.save({"step": step, "weights": weights}, saved)
        dist.barrier()  # the checkpoint is whole
        if rank == 1:
            sys.exit(5)
assert weights.tolist() == [6 * 3.0] * 4, weights
print(f"attempt {attempt} done\\n", end="", flush=True)
dist.destroy_process_group()
"""


def test_elastic_restart(tmp_path: Path) -> None:
    """Field case 60: the second attempt takes nothing from the first but the checkpoint."""
    script = tmp_path / "restarted.py"
    script.write_text(RESTARTED)
    agent = Agent(script, "--standalone", "--nproc-per-node=2", "--max-restarts=1", env={"FOLDER": str(tmp_path)})
    with agents(agent):
        assert agent.process.wait(120) == 0, agent.told()[-8000:]
    assert agent.told().count("attempt 1 done") == 2, agent.told()


ENDLESS = """
import os, torch, torch.distributed as dist
dist.init_process_group("neuron")
value = torch.ones(1 << 20, device="neuron")
print(f"worker {os.getpid()}\\n", end="", flush=True)  # one write: the workers share the file
while True:
    dist.all_reduce(value, op=dist.ReduceOp.MAX)
    value[0].item()
"""


def test_an_agent_takes_its_workers_with_it(tmp_path: Path) -> None:
    """Field case 60: SIGTERM to the agent in the middle of a collective ends all workers."""
    script = tmp_path / "endless.py"
    script.write_text(ENDLESS)
    agent = Agent(script, "--standalone", "--nproc-per-node=2")
    with agents(agent):
        agent.wait_until(r"worker \d+", 2)
        pids = agent.workers()
        os.kill(agent.process.pid, signal.SIGTERM)
        assert agent.process.wait(60) != 0
        deadline = time.monotonic() + 30
        while any(runs(pid) for pid in pids) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not [pid for pid in pids if runs(pid)], agent.told()[-6000:]
