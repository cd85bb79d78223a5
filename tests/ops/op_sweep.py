"""Runs the sweep in worker processes, and goes on after one that crashed or hangs.

python tests/ops/op_sweep.py --report build/operators.jsonl [--only PATTERN] [--tenth] [--workers N]
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from op_verdict import Result, unexpected

HERE = Path(__file__).resolve().parent
ENTRY_SECONDS = 600
# Few operators have hundreds of samples, which differ in little.
MOST_SAMPLES = 200


def _environment() -> dict[str, str]:
    paths = [str(HERE), str(HERE.parent / "python"), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in paths if path)}


class Worker:
    """One process at a time, over a list of entries."""

    def __init__(self, entries: list[str], directory: Path, name: str, most_samples: int, checks: str) -> None:
        self.left = entries
        self.directory = directory
        self.name = name
        self.most_samples = most_samples
        self.checks = checks
        self.results: dict[str, Result] = {}

    def run(self) -> None:
        for process in itertools.count():
            if not self.left:
                break
            self.report = self.directory / f"{self.name}.{process}.jsonl"
            self._run_process()
            self.left = [entry for entry in self.left if entry not in self.results]

    def _run_process(self) -> None:
        self.report.write_text("")
        with tempfile.TemporaryFile("w+") as entries, tempfile.TemporaryFile("w+") as said:
            entries.write("\n".join(self.left))
            entries.seek(0)
            command = [sys.executable, str(HERE / "op_worker.py"), str(self.report), str(self.most_samples)]
            command.append(self.checks)
            process = subprocess.Popen(command, stdin=entries, stdout=said, stderr=said, env=_environment())
            hung = self._watch(process)
            begun = self._read()
            if begun is None and process.returncode == 0:
                return
            said.seek(0)
            tail = said.read()[-2000:]
        if begun is None:
            raise RuntimeError(f"a worker of the sweep ended with {process.returncode} outside of an entry:\n{tail}")
        fate = "hangs" if hung else "crashes"
        self.results[begun] = {"entry": begun, fate: f"exit code {process.returncode}: {tail}"}

    def _watch(self, process: subprocess.Popen[bytes]) -> bool:
        """True: it was killed, as it stayed in one entry for too long."""
        size, since = 0, time.monotonic()
        while process.poll() is None:
            time.sleep(0.2)
            now = self.report.stat().st_size
            if now != size:
                size, since = now, time.monotonic()
            if time.monotonic() - since > ENTRY_SECONDS:
                process.kill()
                process.wait()
                return True
        return False

    def _read(self) -> str | None:
        """Takes the results; the entry that began and did not end."""
        begun = None
        for line in self.report.read_text().splitlines():
            record = json.loads(line)
            if "begins" in record:
                begun = record["begins"]
            else:
                self.results[record["entry"]] = record
                begun = None
        return begun


def sweep(
    entries: list[str],
    directory: Path,
    *,
    workers: int = 2,
    most_samples: int = MOST_SAMPLES,
    checks: str = "operators",
) -> dict[str, Result]:
    """Entry -> result, in the order of `entries`. `checks`: "operators", or "derivatives" for the higher ones."""
    crew = [
        Worker(entries[index::workers], directory, f"worker{index}", most_samples, checks) for index in range(workers)
    ]
    threads = [threading.Thread(target=worker.run) for worker in crew]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    results = {name: result for worker in crew for name, result in worker.results.items()}
    return {entry: results[entry] for entry in entries}


def main() -> None:
    sys.path.insert(0, str(HERE.parent / "python"))
    from op_entries import SHORT_SAMPLES, derivative_entries, entries, short_entries

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--report", type=Path, required=True)
    parser.add_argument("--only", default="")
    parser.add_argument("--short", action="store_true", help="what `make test` runs")
    parser.add_argument("--derivatives", action="store_true", help="second and forward-mode ones")
    parser.add_argument("--workers", type=int, default=2)
    arguments = parser.parse_args()
    choices = derivative_entries() if arguments.derivatives else short_entries() if arguments.short else entries()
    chosen = [entry for entry in choices if re.search(arguments.only, entry)]
    with tempfile.TemporaryDirectory() as directory:
        samples = SHORT_SAMPLES if arguments.short else MOST_SAMPLES
        checks = "derivatives" if arguments.derivatives else "operators"
        results = sweep(chosen, Path(directory), workers=arguments.workers, most_samples=samples, checks=checks)
    arguments.report.write_text("".join(json.dumps(result) + "\n" for result in results.values()))
    failed = {entry: problems for entry, result in results.items() if (problems := unexpected(result))}
    for entry, problems in failed.items():
        print(entry, *problems, sep="\n    ")
    print(f"{len(results)} entries, {len(failed)} failed")


if __name__ == "__main__":
    main()
