"""Run a script on several ranks, as real processes, and collect what each of them did.

Two launchers: `run_ranks` starts the ranks itself (a custom launcher, as the specification allows) and keeps every
rank's output apart; `run_torchrun` goes through torchrun. Both end every process they started, at the latest after
`timeout` seconds, and never raise for a rank's own failure: the caller looks at the exit codes.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

# Variables of the test's own environment that would leak into the ranks.
_SCRUBBED = (
    "RANK",
    "WORLD_SIZE",
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
    "MASTER_ADDR",
    "MASTER_PORT",
    "GROUP_RANK",
    "NEURON_RT_VISIBLE_CORES",
    "NEURON_RT_NUM_CORES",
    "NEURON_EMU_LIMITS",
    "TORCH_NEURONX_ENABLE_HOST_CC",
    "TORCH_NEURONX_ENABLE_STREAMS",
    "NKI_DMA_TRANSPOSE_AS_PE_TRANSPOSE",
    "TORCH_DISTRIBUTED_DEBUG",
)


@dataclass
class RankResult:
    rank: int
    returncode: int | None  # None: still running at the time limit, and killed
    stdout: str
    stderr: str
    seconds: float

    def describe(self) -> str:
        how = "timed out" if self.returncode is None else f"exit {self.returncode}"
        return f"--- rank {self.rank}: {how} after {self.seconds:.1f} s\n{self.stdout[-3000:]}\n{self.stderr[-6000:]}"


@dataclass
class RunResult:
    ranks: list[RankResult] = field(default_factory=list)

    def describe(self) -> str:
        return "\n".join(rank.describe() for rank in self.ranks)

    def check(self) -> RunResult:
        assert all(rank.returncode == 0 for rank in self.ranks), self.describe()
        return self

    @property
    def returncodes(self) -> list[int | None]:
        return [rank.returncode for rank in self.ranks]

    @property
    def stdout(self) -> str:
        return "".join(rank.stdout for rank in self.ranks)

    @property
    def stderr(self) -> str:
        return "".join(rank.stderr for rank in self.ranks)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def base_environment(extra: Mapping[str, str | None] | None = None) -> dict[str, str]:
    env = {key: value for key, value in os.environ.items() if key not in _SCRUBBED}
    env.setdefault("OMP_NUM_THREADS", "1")
    env["PYTHONPATH"] = os.pathsep.join(
        part for part in (str(Path(__file__).parent), env.get("PYTHONPATH", "")) if part
    )
    for key, value in (extra or {}).items():
        if value is None:
            env.pop(key, None)
        else:
            env[key] = value
    return env


def rank_environment(rank: int, world_size: int, port: int) -> dict[str, str]:
    return {
        "RANK": str(rank),
        "WORLD_SIZE": str(world_size),
        "LOCAL_RANK": str(rank),
        "LOCAL_WORLD_SIZE": str(world_size),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }


class Ranks:
    """Running ranks; end them with `wait` or by leaving the `with` block."""

    def __init__(
        self,
        script: str | Path,
        world_size: int,
        *,
        env: Mapping[str, str | None] | None = None,
        rank_env: Sequence[Mapping[str, str | None]] | None = None,
        args: Sequence[str] = (),
    ) -> None:
        self.folder = tempfile.TemporaryDirectory(prefix="neuron-ranks-")
        path = script if isinstance(script, Path) else Path(self.folder.name) / "script.py"
        if isinstance(script, str):
            path.write_text(script)
        port = free_port()
        self.started = time.monotonic()
        self.processes: list[subprocess.Popen[bytes]] = []
        self.ended: list[float | None] = [None] * world_size
        for rank in range(world_size):
            merged: dict[str, str | None] = {**rank_environment(rank, world_size, port), **(env or {})}
            merged.update(rank_env[rank] if rank_env else {})
            with self._file(rank, "out", "wb") as out, self._file(rank, "err", "wb") as err:
                self.processes.append(
                    subprocess.Popen(
                        [sys.executable, "-X", "faulthandler", str(path), *args],
                        env=base_environment(merged),
                        stdout=out,
                        stderr=err,
                        stdin=subprocess.DEVNULL,
                        start_new_session=True,
                    )
                )

    def _file(self, rank: int, kind: str, mode: str):
        return open(Path(self.folder.name) / f"rank{rank}.{kind}", mode)

    def output(self, rank: int) -> str:
        with self._file(rank, "out", "rb") as stream:
            return stream.read().decode(errors="replace")

    def wait_for_line(self, rank: int, text: str, timeout: float = 60) -> None:
        """Waits until the rank has printed `text`."""
        deadline = time.monotonic() + timeout
        while text not in self.output(rank):
            assert self.processes[rank].poll() is None, f"rank {rank} ended early\n{self.wait(1).describe()}"
            assert time.monotonic() < deadline, f"rank {rank} never printed {text!r}\n{self.wait(0).describe()}"
            time.sleep(0.02)

    def wait(self, timeout: float) -> RunResult:
        deadline = time.monotonic() + timeout
        while any(end is None for end in self.ended) and time.monotonic() < deadline:
            self._note_ended()
            time.sleep(0.02)
        self._note_ended()
        codes = [process.poll() for process in self.processes]
        self.kill()
        return RunResult(
            [
                RankResult(
                    rank,
                    codes[rank],
                    self.output(rank),
                    self._file(rank, "err", "rb").read().decode(errors="replace"),
                    (self.ended[rank] or time.monotonic()) - self.started,
                )
                for rank in range(len(self.processes))
            ]
        )

    def _note_ended(self) -> None:
        for rank, process in enumerate(self.processes):
            if self.ended[rank] is None and process.poll() is not None:
                self.ended[rank] = time.monotonic()

    def kill(self) -> None:
        for process in self.processes:
            if process.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def __enter__(self) -> Ranks:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        self.folder.cleanup()


def run_ranks(
    script: str | Path,
    world_size: int,
    *,
    timeout: float = 90,
    env: Mapping[str, str | None] | None = None,
    rank_env: Sequence[Mapping[str, str | None]] | None = None,
    args: Sequence[str] = (),
) -> RunResult:
    with Ranks(script, world_size, env=env, rank_env=rank_env, args=args) as ranks:
        return ranks.wait(timeout)


def run_torchrun(
    script: str | Path,
    world_size: int,
    *,
    timeout: float = 120,
    env: Mapping[str, str | None] | None = None,
    args: Sequence[str] = (),
) -> RankResult:
    """All ranks under torchrun on this node; the output of launcher and workers is one text each, rank after rank.

    torchrun starts workers unbuffered: of a line, text and end are two writes, and on a stream that they share one
    line would end in another. So each writes to a file of its own.
    """
    with tempfile.TemporaryDirectory(prefix="neuron-torchrun-") as folder:
        path = script if isinstance(script, Path) else Path(folder) / "script.py"
        if isinstance(script, str):
            path.write_text(script)
        logs = Path(folder) / "logs"
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={world_size}"]
        command += ["--log-dir", str(logs), "--redirects", "3"]
        started = time.monotonic()
        process = subprocess.Popen(
            [*command, str(path), *args],
            env=base_environment(env),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            text=True,
        )
        try:
            out, err = process.communicate(timeout=timeout)
            code: int | None = process.returncode
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            out, err = process.communicate()
            code = None
        told = {
            stream: "".join(log.read_text(errors="replace") for log in sorted(logs.glob(f"*/attempt_*/*/{stream}.log")))
            for stream in ("stdout", "stderr")
        }
        return RankResult(-1, code, out + told["stdout"], told["stderr"] + err, time.monotonic() - started)
