"""The table of a result of run_all.py, in Markdown: what was measured, and what it is to be.

python bench/table.py bench/results/<date>-<commit>.json
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

Results = dict[str, Any]
KIB, MIB = 1 << 10, 1 << 20
LARGE = 16 * MIB


def times(*values: float) -> str:
    return "; ".join(f"{value:.2f}x" for value in values)


def figures(results: Results, name: str) -> Any:
    return results[name]["figures"]


def step(name: str, key: str = "wall_ratio") -> Callable[[Results], str]:
    """Ratios of a training step; one for each process."""

    def cell(results: Results) -> str:
        found = figures(results, name)
        return times(*(row[key] for row in (found if isinstance(found, list) else [found])))

    return cell


def against_gloo(
    ops: list[str], smallest: int, largest: int, name: str = "torch_collectives"
) -> Callable[[Results], str]:
    """The least ratio over the sizes, and the most, of each operation."""

    def cell(results: Results) -> str:
        parts = []
        for op in ops:
            rows = figures(results, name)["rows"]
            ratios = [row["ratio"] for row in rows if row["op"] == op and smallest <= row["bytes"] <= largest]
            parts.append(f"{op} {min(ratios):.1f} to {max(ratios):.1f}" if len(ratios) > 1 else f"{op} {ratios[0]:.1f}")
        return "; ".join(parts)

    return cell


def against_mpi(ops: list[str], ranks: int, smallest: int, largest: int) -> Callable[[Results], str]:
    def cell(results: Results) -> str:
        parts = []
        for op in ops:
            rows = [row for row in figures(results, "open_mpi")["rows"] if row["op"] == op and row["ranks"] == ranks]
            ratios = [row["ratio"] for row in rows if smallest <= row["size"] <= largest]
            if ratios:
                parts.append(f"{op} {min(ratios):.2f} to {max(ratios):.2f}")
        return "; ".join(parts) or "no Open MPI here"

    return cell


def bare(results: Results) -> str:
    rows = figures(results, "engine_collectives")["bare"]
    ratios: dict[str, list[str]] = {}
    for row in rows:
        ratios.setdefault(row["op"], []).append(f"{row['ratio']:.2f}")
    return "; ".join(f"{op} {', '.join(found)}" for op, found in ratios.items())


def bfloat16(results: Results) -> str:
    return ", ".join(
        f"{ratio:.2f}" for ratio in figures(results, "engine_collectives")["bfloat16_against_float32"].values()
    )


def dispatch(results: Results) -> str:
    return times(*(figures(results, "dispatch")[kind]["ratio"] for kind in ("burst", "sustained")))


def call_cost(results: Results) -> str:
    return "; ".join(
        f"{figures(results, 'call_cost')[kind]['median_us']:.2f} us" for kind in ("recorder_on", "recorder_off")
    )


def memory(key: str) -> Callable[[Results], str]:
    return lambda results: times(*(row[key] for row in figures(results, "memory")["rows"]))


SYMMETRIC = ["all_reduce", "all_gather", "reduce_scatter", "all_to_all"]
ROOTED = ["broadcast", "reduce", "gather", "scatter"]
ALL = [*SYMMETRIC, *ROOTED, "send_recv"]
# What, the figures, the goal.
ROWS: list[tuple[str, Callable[[Results], str], str]] = [
    ("submitting `a + b`, 64 floats, against the CPU's whole call: burst; sustained", dispatch, "at most 1.8x"),
    ("GPT step, 1 thread, against CPU eager", step("train_step_1_thread"), "at most 0.97x"),
    ("the same, 2 threads", step("train_step_2_threads"), "at most 1.02x"),
    ("the same, two processes at once", step("train_step_2_processes"), "at most 1.03x"),
    ("ResNet-18 step, 64x64, 1 thread", step("train_step_resnet"), "at most 0.97x"),
    ("MLP step, 8 x 64", step("train_step_mlp"), "at most 1.0x"),
    ("the same, two processes at once", step("train_step_mlp_2_processes"), "at most 1.25x"),
    ("foreach AdamW, 300 tensors", step("train_step_adamw"), "at most 1.05x"),
    ("peak device memory against synchronous execution, batch 4; 32", memory("device_ratio"), "at most 1.05x"),
    ("peak resident memory against CPU, batch 4; 32", memory("host_ratio"), "at most 1.15x"),
    *(
        (f"{way} step against gloo, {ranks} ranks: {kind}", step(f"{name}_step_{ranks}_ranks", key), goal)
        for way, name, ranks, kind, key, goal in (
            ("DDP", "ddp", 2, "time", "wall_ratio", "at most 0.88x"),
            ("DDP", "ddp", 2, "CPU time", "cpu_time_ratio", "at most 0.95x"),
            ("FSDP2", "fsdp2", 2, "time", "wall_ratio", "at most 0.72x"),
            ("FSDP2", "fsdp2", 2, "CPU time", "cpu_time_ratio", "at most 0.85x"),
            ("TP (MLP)", "tp", 2, "time", "wall_ratio", "at most 0.8x"),
            ("1F1B pipeline", "pipeline", 2, "time", "wall_ratio", "at most 0.9x"),
            ("DDP", "ddp", 4, "time", "wall_ratio", "at most 0.92x"),
            ("FSDP2", "fsdp2", 4, "time", "wall_ratio", "at most 0.8x"),
        )
    ),
    ("FSDP2 step against the CPU's computation alone", step("fsdp2_step_against_plain"), "at most 1.35x"),
    ("DDP step of width 1024, batch 1, against gloo", step("ddp_step_width_1024"), "at most 0.88x"),
    ("FSDP2 step of width 1024, batch 1, against gloo", step("fsdp2_step_width_1024"), "at most 0.5x"),
    ("host time of an 8-byte all_reduce, flight recorder on; off", call_cost, "at most 8 us"),
    (
        "collectives through torch against gloo, 2 ranks, 1 KB to 256 MB",
        against_gloo(SYMMETRIC, KIB, 256 * MIB),
        "8 or more",
    ),
    ("rooted ones, 1 KB to 256 MB", against_gloo(ROOTED, KIB, 256 * MIB), "6 or more"),
    ("send and receive, 1 KB to 256 MB", against_gloo(["send_recv"], KIB, 256 * MIB), "3 or more"),
    ("4 ranks on 2 cores, 1 MB and 16 MB", against_gloo(ALL, MIB, LARGE, "torch_collectives_4_ranks"), "above 1"),
    ("8 ranks", against_gloo(ALL, MIB, LARGE, "torch_collectives_8_ranks"), "above 1"),
    ("16 ranks", against_gloo(ALL, MIB, LARGE, "torch_collectives_16_ranks"), "above 1"),
    ("engine, 16, 64, 256 MB, against a bare loop over the same bytes", bare, "all_reduce 0.9, else 0.85"),
    ("engine, all_reduce of bf16 in bytes/s against fp32: 16, 64, 256 MB", bfloat16, "0.8 or more"),
    ("engine against Open MPI, 2 ranks, 8 B to 4 KB", against_mpi([*SYMMETRIC, *ROOTED], 2, 8, 4 * KIB), "1 or more"),
    (
        "engine against Open MPI, 2 ranks, 1 MB to 64 MB",
        against_mpi([*SYMMETRIC, *ROOTED], 2, MIB, 64 * MIB),
        "3 or more",
    ),
    *(
        (
            f"engine against Open MPI, {ranks} ranks, 1 MB to 16 MB",
            against_mpi([*SYMMETRIC, *ROOTED], ranks, MIB, LARGE),
            "above 1",
        )
        for ranks in (4, 8, 16)
    ),
]


def table(results: Results) -> str:
    lines = ["| what | result | goal |", "|---|---|---|"]
    lines += [f"| {what} | {cell(results)} | {goal} |" for what, cell, goal in ROWS]
    return "\n".join(lines)


if __name__ == "__main__":
    print(table(json.loads(Path(sys.argv[1]).read_text())))
