"""`neuron-emu nccom-test`: what it prints and writes, what it refuses, and that no rank outlives it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from scripts import environment

COMMAND = [sys.executable, "-m", "neuron_emu.cli.main", "nccom-test"]
HEADER = ["size(B)", "count(elems)", "type", "time(us)", "algbw(GB/s)", "busbw(GB/s)", "#wrong"]
OPERATIONS = ["allr", "allg", "redsct", "alltoall", "sendrecv", "bcast", "reduce", "gather", "scatter"]
# Runs for minutes, if nobody ends it.
ENDLESS = ["-r", "3", "allr", "-b", "64K", "-e", "64K", "-n", "5000000", "-w", "0", "--no-check"]

Nccom = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def nccom(tmp_path: Path) -> Nccom:
    """Runs it to its end, in a folder of its own."""

    def run(*arguments: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*COMMAND, *arguments],
            env=environment({"TMPDIR": str(tmp_path), **(env or {})}),
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    return run


def rows(table: str) -> list[list[str]]:
    return [line.split() for line in table.splitlines() if re.match(r" +\d", line)]


@pytest.mark.parametrize("how", [[], ["--threads"]], ids=["processes", "threads"])
@pytest.mark.parametrize("ranks", ["1", "2", "3"])
def test_every_operation_is_right(nccom: Nccom, how: list[str], ranks: str) -> None:
    sizes = ["-b", "8", "-e", "80K", "-f", "100", "-d", "fp32", "-n", "3", "-w", "1"]
    done = nccom("-r", ranks, *OPERATIONS, *sizes, *how)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("# ") == len(OPERATIONS)
    assert done.stdout.count("Avg bus bandwidth:") == len(OPERATIONS)
    table = rows(done.stdout)
    assert len(table) == 3 * len(OPERATIONS)
    assert {row[-1] for row in table} == {"0"}


def test_the_table_of_the_products_guide(nccom: Nccom) -> None:
    done = nccom("-r", "2", "allr", "-b", "1kb", "-e", "1mb", "-f", "32", "-d", "fp32")
    lines = done.stdout.splitlines()
    assert lines[0].split() == HEADER
    assert [row[:3] for row in rows(done.stdout)] == [
        ["1024", "256", "fp32"],
        ["32768", "8192", "fp32"],
        ["1048576", "262144", "fp32"],
    ]
    assert re.fullmatch(r"Avg bus bandwidth:\t\d+\.\d{4}GB/s", lines[-1])
    size, time_us, algbw, busbw = (float(rows(done.stdout)[-1][i]) for i in (0, 3, 4, 5))
    assert algbw == pytest.approx(size / 2**30 / (time_us / 1e6), rel=0.02, abs=0.01)
    assert busbw == pytest.approx(algbw, abs=0.01)  # 2 (r-1)/r = 1


def test_the_line_about_emulation_is_on_stderr_unless_it_is_to_be_quiet(nccom: Nccom) -> None:
    line = ("-r", "2", "allr", "-b", "8", "-e", "8")
    assert "2 software NeuronCores (emulated) as processes" in nccom(*line, env={"NEURON_EMU_QUIET": "0"}).stderr
    assert nccom(*line).stderr == ""


def test_statistics(nccom: Nccom) -> None:
    done = nccom("-r", "2", "--stats", "allr", "-b", "4K", "-e", "4K", "--no-check", "--threads")
    names = ["avg", "p50", "p90", "p99", "p100"]
    assert done.stdout.splitlines()[0].split() == [
        *HEADER[:3],
        *[f"time:{name}(us)" for name in names],
        *HEADER[4:6],
    ]
    (row,) = rows(done.stdout)
    times = [float(time_us) for time_us in row[4:8]]
    assert times == sorted(times)


def test_json(nccom: Nccom, tmp_path: Path) -> None:
    line = ("-r", "2", "allr", "allg", "-b", "8", "-e", "1K", "-i", "508", "-t", "p99", "-d", "bf16", "--op", "max")
    done = nccom(*line, "--report-to-json-file", "report.json")
    assert done.returncode == 0, done.stderr
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["config"]["operations"] == ["all_reduce", "all_gather"]
    assert {"nworkers": 2, "op": "max", "ranks": "processes", "emulated": True}.items() <= report["config"].items()
    results = report["results"]
    assert [(row["operation"], row["size(B)"]) for row in results] == [
        (operation, size) for operation in ("all_reduce", "all_gather") for size in (8, 516, 1024)
    ]
    for row in results:
        assert row["type"] == "bf16"
        assert row["count(elems)"] == row["size(B)"] // 2
        assert row["wrong(elems)"] == 0
        assert row["time:p99(us)"] > 0
        assert row["algbw(GB/s)"] == pytest.approx(row["size(B)"] / 2**30 / (row["time:avg(us)"] / 1e6), rel=1e-6)
    factor = {"all_reduce": 1.0, "all_gather": 0.5}
    for row in results:
        assert row["busbw(GB/s)"] == pytest.approx(row["algbw(GB/s)"] * factor[row["operation"]])


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ("allr", "the number of workers is missing; say for example: -r 2"),
        ("-r 2", "no operation is given"),
        ("-r 2 allreduce", "'allreduce' is no operation; did you mean all_reduce?"),
        ("-r 65 allr", "64 logical cores are visible (trn2.48xlarge, LNC 2); give at most 64"),
        ("-r 2 allr -b 12Q", "-b 12Q: a size from 1 to 64T is needed, such as 4096, 1K, 32MB or 1GiB"),
        ("-r 2 allr -d float33", "did you mean float32"),
        ("-r 2 allr --niters 3", "'--niters' is no option; did you mean --iters"),
        ("-r 2 allr -N 2", "only the cores of one machine are emulated"),
        ("-r 2 allr --report-to-json-file no/such/folder.json", "cannot be written: No such file or directory"),
    ],
)
def test_bad_options(nccom: Nccom, arguments: str, told: str) -> None:
    done = nccom(*arguments.split())
    assert done.returncode == 2
    assert done.stdout == ""
    assert told in done.stderr
    assert "nccom-test --help" in done.stderr


def test_a_malformed_variable_is_named(nccom: Nccom) -> None:
    done = nccom("-r", "2", "allr", env={"NEURON_EMU_HBM_BYTES": "much"})
    assert done.returncode == 2
    assert "NEURON_EMU_HBM_BYTES=much" in done.stderr


@pytest.mark.parametrize("how", [[], ["--threads"]], ids=["processes", "threads"])
def test_a_rank_without_memory_fails_the_run(nccom: Nccom, how: list[str]) -> None:
    done = nccom("-r", "2", "allr", *how, env={"NEURON_EMU_HBM_BYTES": "16M"})
    assert done.returncode == 1
    assert "nccom-test: rank " in done.stderr
    assert "it is more than the core's memory" in done.stderr


def test_a_launchers_variables_do_not_matter(nccom: Nccom) -> None:
    launcher = {"RANK": "1", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "8"}
    done = nccom("-r", "2", "allr", "-b", "8", "-e", "8", env=launcher)
    assert done.returncode == 0, done.stderr


def test_the_commands_of_the_documentation(nccom: Nccom) -> None:
    page = (Path(__file__).parents[2] / "docs" / "nccom_test.md").read_text()
    commands = re.findall(r"^(?:\$ )?neuron-emu nccom-test (.*)$", page, re.MULTILINE)
    assert len(commands) >= 3
    for command in commands:
        done = nccom(*command.split())
        assert done.returncode == 0, done.stderr


def test_help_needs_no_torch(nccom: Nccom, tmp_path: Path) -> None:
    assert "--report-to-json-file" in nccom("--help").stdout
    script = (
        "import os, sys\n"
        "os.execv = lambda path, arguments: print(arguments, 'torch' in sys.modules)\n"
        "from neuron_emu.cli.main import main\n"
        "main(['nccom-test', '-r', '2', '--check', 'allr'])\n"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout == "['nccom-test', '-r', '2', '--check', 'allr'] False\n"


def _stat(pid: int) -> list[str]:
    """State, parent and so on; empty when there is no such process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return []


def _runs(pid: int) -> bool:
    return _stat(pid)[:1] not in ([], ["Z"])


def _wait_until(done: Callable[[], bool], what: str) -> None:
    limit = time.monotonic() + 60
    while not done():
        assert time.monotonic() < limit, what
        time.sleep(0.02)


class Endless:
    """A run in its timed calls, and the processes of its ranks in their order."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.folder = folder
        self.process = subprocess.Popen(
            [*COMMAND, *ENDLESS, *options],
            env=environment({"TMPDIR": str(folder)}),
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            # Who starts the tests in the background of a shell has them ignore it.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
        assert self.process.stdout is not None
        assert self.process.stdout.readline().split() == HEADER[:-1], self.process.communicate()[1]
        names = {}
        for entry in Path("/proc").glob("[0-9]*"):
            if _stat(int(entry.name))[1:2] == [str(self.process.pid)]:
                names[(entry / "comm").read_text().strip()] = int(entry.name)
        self.ranks = [names[f"nccom-test:{rank}"] for rank in range(3)]

    def end(self) -> str:
        """Waits for the end; gives stderr."""
        return self.process.communicate(timeout=60)[1]

    def check_nothing_left(self) -> None:
        _wait_until(lambda: not any(map(_runs, self.ranks)), "ranks are left behind")
        if self.process.returncode != -signal.SIGKILL:
            assert list(self.folder.iterdir()) == []


@pytest.fixture
def endless(tmp_path: Path) -> Iterator[Endless]:
    run = Endless(tmp_path)
    yield run
    run.process.kill()
    run.process.communicate()


@pytest.mark.parametrize("victim", [0, 1, 2])
def test_a_killed_rank_ends_the_run(endless: Endless, victim: int) -> None:
    os.kill(endless.ranks[victim], signal.SIGKILL)
    stderr = endless.end()
    assert endless.process.returncode == 1
    assert f"nccom-test: rank {victim} (pid {endless.ranks[victim]}) was ended by signal 9" in stderr
    # The others say so, too, and in which call they wait.
    assert f"rank {victim} has ended (pid {endless.ranks[victim]}, killed by signal 9" in stderr
    assert "barrier" in stderr or "all_reduce" in stderr
    endless.check_nothing_left()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_the_end_of_the_program_is_the_end_of_its_ranks(endless: Endless, number: signal.Signals) -> None:
    endless.process.send_signal(number)
    endless.end()
    assert endless.process.returncode == -number
    endless.check_nothing_left()


def test_a_stopped_rank_ends_the_run_after_the_timeout(tmp_path: Path) -> None:
    run = Endless(tmp_path, "--timeout", "1")
    try:
        os.kill(run.ranks[1], signal.SIGSTOP)
        stderr = run.end()
        assert run.process.returncode == 1
        assert f"rank 1 (pid {run.ranks[1]}) did not end after another one had failed; it is killed" in stderr
        run.check_nothing_left()
    finally:
        run.process.kill()
        run.process.communicate()
