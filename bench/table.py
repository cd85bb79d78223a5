"""The table of a result of run_all.py, in Markdown: what was measured, by which command, and what it is to be.

python bench/table.py bench/results/<date>-<commit>.json
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

Results = dict[str, Any]
# The result of a row, from the figures of its benchmark.
Cell = Callable[[Any], str]
KIB, MIB = 1 << 10, 1 << 20
SYMMETRIC = ["all_reduce", "all_gather", "reduce_scatter", "all_to_all"]
ROOTED = ["broadcast", "reduce", "gather", "scatter"]
ALL = [*SYMMETRIC, *ROOTED, "send_recv"]


class Row(NamedTuple):
    what: str
    benchmark: str  # its name in run_all.py
    cell: Cell
    goal: str


def times(ratios: Iterable[float]) -> str:
    return "; ".join(f"{ratio:.2f}x" for ratio in ratios)


def ranges(ratios: dict[str, list[float]], digits: int) -> str:
    """The least and the most for each operation."""
    return "; ".join(f"{op} {min(found):.{digits}f} to {max(found):.{digits}f}" for op, found in ratios.items())


def step(key: str = "wall_ratio") -> Cell:
    """Ratios of a training step; one for each process."""
    return lambda figures: times(row[key] for row in (figures if isinstance(figures, list) else [figures]))


def against_gloo(ops: list[str]) -> Cell:
    return lambda figures: ranges(
        {op: [row["ratio"] for row in figures["rows"] if row["op"] == op] for op in ops}, digits=1
    )


def against_mpi(ranks: int, smallest: int, largest: int) -> Cell:
    def cell(figures: Any) -> str:
        rows = [row for row in figures["rows"] if row["ranks"] == ranks and smallest <= row["size"] <= largest]
        ratios = {op: [row["ratio"] for row in rows if row["op"] == op] for op in (*SYMMETRIC, *ROOTED)}
        return ranges(ratios, digits=2) if rows else "no Open MPI here"

    return cell


def bare(figures: Any) -> str:
    ratios: dict[str, list[str]] = {}
    for row in figures["bare"]:
        ratios.setdefault(row["op"], []).append(f"{row['ratio']:.2f}")
    return "; ".join(f"{op} {', '.join(found)}" for op, found in ratios.items())


def bfloat16(figures: Any) -> str:
    return ", ".join(f"{ratio:.2f}" for ratio in figures["bfloat16_against_float32"].values())


def dispatch(figures: Any) -> str:
    return times(figures[kind]["ratio"] for kind in ("burst", "sustained"))


def call_cost(figures: Any) -> str:
    return "; ".join(f"{figures[kind]['median_us']:.2f} us" for kind in ("recorder_on", "recorder_off"))


def memory(key: str) -> Cell:
    return lambda figures: times(row[key] for row in figures["rows"])


ROWS = [
    Row("`a + b`, 64 floats, against the CPU's whole call: burst; sustained", "dispatch", dispatch, "at most 1.8x"),
    Row("GPT step, 1 thread, against CPU eager", "train_step_1_thread", step(), "at most 0.97x"),
    Row("the same, 2 threads", "train_step_2_threads", step(), "at most 1.02x"),
    Row("the same, two processes at once", "train_step_2_processes", step(), "at most 1.03x"),
    Row("ResNet-18 step, 64x64, 1 thread", "train_step_resnet", step(), "at most 0.97x"),
    Row("MLP step, 8 x 64", "train_step_mlp", step(), "at most 1.0x"),
    Row("the same, two processes at once", "train_step_mlp_2_processes", step(), "at most 1.25x"),
    Row("foreach AdamW, 300 tensors", "train_step_adamw", step(), "at most 1.05x"),
    Row("device peak against synchronous execution, batch 4; 32", "memory", memory("device_ratio"), "at most 1.05x"),
    Row("resident peak against CPU, batch 4; 32", "memory", memory("host_ratio"), "at most 1.15x"),
    Row("DDP step against gloo, 2 ranks", "ddp_step_2_ranks", step(), "at most 0.88x"),
    Row("the same: CPU time", "ddp_step_2_ranks", step("cpu_time_ratio"), "at most 0.95x"),
    Row("FSDP2 step against gloo, 2 ranks", "fsdp2_step_2_ranks", step(), "at most 0.72x"),
    Row("the same: CPU time", "fsdp2_step_2_ranks", step("cpu_time_ratio"), "at most 0.85x"),
    Row("TP (MLP) step against gloo, 2 ranks", "tp_step_2_ranks", step(), "at most 0.8x"),
    Row("1F1B pipeline step against gloo, 2 ranks", "pipeline_step_2_ranks", step(), "at most 0.9x"),
    Row("DDP step against gloo, 4 ranks", "ddp_step_4_ranks", step(), "at most 0.92x"),
    Row("FSDP2 step against gloo, 4 ranks", "fsdp2_step_4_ranks", step(), "at most 0.8x"),
    Row("FSDP2 step against the CPU's computation alone", "fsdp2_step_against_plain", step(), "at most 1.35x"),
    Row("DDP step of width 1024, batch 1, against gloo", "ddp_step_width_1024", step(), "at most 0.88x"),
    Row("FSDP2 step of width 1024, batch 1, against gloo", "fsdp2_step_width_1024", step(), "at most 0.5x"),
    Row("host time of an 8-byte all_reduce, flight recorder on; off", "call_cost", call_cost, "at most 8 us"),
    Row(
        "through torch against gloo, 2 ranks, 1 KB to 256 MB", "torch_collectives", against_gloo(SYMMETRIC), "8 or more"
    ),
    Row("the same, rooted", "torch_collectives", against_gloo(ROOTED), "6 or more"),
    Row("the same, messages", "torch_collectives", against_gloo(["send_recv"]), "3 or more"),
    *(
        Row(f"the same, {n} ranks, 1 and 16 MB", f"torch_collectives_{n}_ranks", against_gloo(ALL), "above 1")
        for n in (4, 8, 16)
    ),
    Row("engine against a bare loop, 16, 64, 256 MB", "engine_collectives", bare, "all_reduce 0.9, else 0.85"),
    Row("engine, bf16 all_reduce against fp32 in bytes/s", "engine_collectives", bfloat16, "0.8 or more"),
    Row("engine against Open MPI, 2 ranks, 8 B to 4 KB", "open_mpi", against_mpi(2, 8, 4 * KIB), "1 or more"),
    Row("the same, 1 MB to 64 MB", "open_mpi", against_mpi(2, MIB, 64 * MIB), "3 or more"),
    *(
        Row(f"the same, {n} ranks, 1 MB to 16 MB", "open_mpi", against_mpi(n, MIB, 16 * MIB), "above 1")
        for n in (4, 8, 16)
    ),
]


def table(results: Results) -> str:
    machine = results["machine"]
    lines = [
        f"Commit {results['commit']}; {machine['cpus']} processors ({machine['cpu']}); Python {machine['python']}.",
        "",
        "| what | `bench/` | result | goal |",
        "|---|---|---|---|",
    ]
    for row in ROWS:
        measured = results[row.benchmark]
        command = measured["command"].partition("bench/")[2]
        lines.append(f"| {row.what} | `{command}` | {row.cell(measured['figures'])} | {row.goal} |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(table(json.loads(Path(sys.argv[1]).read_text())))
