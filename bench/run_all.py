"""Runs every benchmark and writes bench/results/<date>-<commit>.json with the machine, the commands and their figures.

make bench
"""

from __future__ import annotations

import datetime
import json
import os
import platform
import subprocess
import sys
import tempfile
from pathlib import Path

from table import table

HERE = Path(__file__).resolve().parent
# torchrun says at length that it sets OMP_NUM_THREADS, where nobody has.
QUIET = {"OMP_NUM_THREADS": "1", **os.environ, "NEURON_EMU_QUIET": "1"}
LIMIT_S = 900


def python(script: str) -> list[str]:
    """The command of a benchmark and its options."""
    return [sys.executable, *f"bench/{script}".split()]


def torchrun(ranks: int, script: str) -> list[str]:
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
    return [*launcher, *f"bench/{script}".split()]


BENCHMARKS: dict[str, list[str]] = {
    "dispatch": python("dispatch_bench.py"),
    "train_step_1_thread": python("train_step_bench.py --threads 1"),
    "train_step_2_threads": python("train_step_bench.py --threads 2"),
    **{f"train_step_{load}": python(f"train_step_bench.py --workload {load}") for load in ("resnet", "mlp", "adamw")},
    "train_step_mlp_2_processes": python("train_step_bench.py --workload mlp --processes 2"),
    "train_step_2_processes": python("train_step_bench.py --threads 1 --processes 2"),
    "call_cost": python("call_cost_bench.py"),
    "memory": python("memory_bench.py"),
    **{
        f"{way}_step_{ranks}_ranks": torchrun(ranks, f"parallel_step_bench.py --way {way}")
        for way, ranks in (("ddp", 2), ("ddp", 4), ("fsdp2", 2), ("fsdp2", 4), ("tp", 2), ("pipeline", 2))
    },
    "fsdp2_step_against_plain": torchrun(2, "parallel_step_bench.py --way fsdp2 --against plain"),
    **{
        f"{way}_step_width_1024": torchrun(2, f"parallel_step_bench.py --way {way} --width 1024 --batch 1 --rounds 7")
        for way in ("ddp", "fsdp2")
    },
    "torch_collectives": torchrun(2, "torch_collectives_bench.py"),
    **{
        f"torch_collectives_{ranks}_ranks": torchrun(
            ranks, f"torch_collectives_bench.py --smallest {1 << 20} --largest {16 << 20} --rounds 3"
        )
        for ranks in (4, 8, 16)
    },
    "engine_collectives": python("engine_collectives_bench.py"),
    "open_mpi": python("open_mpi_bench.py"),
}


def machine() -> dict[str, object]:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    model = next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), "")
    return {"cpu": model, "cpus": os.cpu_count(), "python": platform.python_version()}


def main() -> None:
    root = HERE.parent
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=root, capture_output=True, text=True, check=False
    ).stdout.strip()
    results: dict[str, object] = {"machine": machine(), "commit": commit}
    with tempfile.TemporaryDirectory() as scratch:
        for name, command in BENCHMARKS.items():
            output = Path(scratch) / f"{name}.json"
            print(f"== {name}", flush=True)
            subprocess.run([*command, "--json", str(output)], cwd=root, check=True, env=QUIET, timeout=LIMIT_S)
            shown = ["python" if word == sys.executable else word for word in command]
            results[name] = {"command": " ".join(shown), "figures": json.loads(output.read_text())}
    target = HERE / "results" / f"{datetime.date.today()}-{commit}.json"
    target.parent.mkdir(exist_ok=True)
    target.write_text(json.dumps(results, indent=1) + "\n")
    print(table(results))
    print(f"written: {target.relative_to(root)}")


if __name__ == "__main__":
    main()
