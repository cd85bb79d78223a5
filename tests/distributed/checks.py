"""Many checks in one launch: starting a rank costs seconds, a check milliseconds.

A *rank module* is a file with functions `check_<name>(rank, world_size)` that every rank runs, in the order of the
file. Run as a script this file is the ranks' side: it makes the group, runs the checks and writes what failed.
Imported, it is pytest's side: `run_checks` launches the ranks once, `CheckResults.verify(name)` fails for a check that
failed on any rank.
"""

from __future__ import annotations

import importlib.util
import json
import re
import sys
import tempfile
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from launch import RunResult, run_ranks

_GROUP_TIMEOUT_S = 20


def check_names(module: Path) -> list[str]:
    """The checks of a rank module, without importing it."""
    return re.findall(r"^def check_(\w+)\(", module.read_text(), flags=re.MULTILINE)


@dataclass
class CheckResults:
    run: RunResult
    failures: list[dict[str, str | None]]  # by rank: check -> traceback, or None when it passed

    def verify(self, name: str) -> None:
        told = []
        for rank, outcome in enumerate(self.failures):
            if name not in outcome:
                told.append(f"rank {rank} never ran it\n{self.run.ranks[rank].describe()}")
            elif outcome[name] is not None:
                told.append(f"rank {rank}:\n{outcome[name]}")
        assert not told, "\n".join(told)


def run_checks(
    module: Path,
    world_size: int,
    *,
    timeout: float = 180,
    check_limit: float = 60,
    env: Mapping[str, str | None] | None = None,
) -> CheckResults:
    with tempfile.TemporaryDirectory(prefix="neuron-checks-") as folder:
        args = [str(module), folder, str(check_limit)]
        run = run_ranks(Path(__file__), world_size, timeout=timeout, env=env, args=args)
        failures: list[dict[str, str | None]] = []
        for rank in range(world_size):
            lines = Path(folder) / f"rank{rank}"
            text = lines.read_text() if lines.exists() else ""
            failures.append(dict(json.loads(line) for line in text.splitlines()))
        return CheckResults(run, failures)


def _load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def _main() -> None:
    import datetime
    import faulthandler
    import os

    import torch.distributed as dist

    path, folder, check_limit = Path(sys.argv[1]), Path(sys.argv[2]), float(sys.argv[3])
    module = _load(path)
    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    backend = getattr(module, "BACKEND", "neuron")
    dist.init_process_group(backend, timeout=datetime.timedelta(seconds=_GROUP_TIMEOUT_S))
    failed = False
    with open(folder / f"rank{rank}", "w") as out:
        for name in check_names(path):
            problem = None
            # Behind a closed gate a check may hang for ever: say where, and let the others fail.
            faulthandler.dump_traceback_later(check_limit, exit=True)
            try:
                getattr(module, f"check_{name}")(rank, world_size)
            except BaseException:  # noqa: BLE001
                problem, failed = traceback.format_exc(), True
            out.write(json.dumps([name, problem]) + "\n")
            out.flush()
    if not failed:
        # Rank 0 has the Store: it may not end while others still make groups over it.
        dist.barrier()
    dist.destroy_process_group()
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    _main()
