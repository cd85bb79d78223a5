"""What people hit with torch.distributed on backends like this one; each row of the list is a test.

The test of a row says `Field case NN` in its docstring: here, in the rank modules, or in the file of its subject, which
may be in tests/python.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from checks import CheckResults, check_names, run_checks

RANKS = Path(__file__).with_name("ranks_field_cases.py")

# The rows about the process group, the ways of training with it, streams, the device, and starting jobs.
ROWS = {
    2: "integers are reduced in their own type",
    3: "strided inputs and outputs",
    4: "odd storage offsets",
    5: "tensors without elements",
    6: "lists of sizes that differ by rank",
    7: "uneven all_to_all_single",
    10: "tags of messages",
    11: "hundreds of messages in a batch",
    12: "receiving from any source",
    15: "the timeout of a group",
    17: "calls that differ between ranks",
    19: "coalesced calls, groups of one",
    20: "object collectives",
    21: "float8",
    22: "bool and all other types",
    23: "barrier as the first call",
    24: "a group for the CPU and the device",
    27: "DDP with no_sync, unused parameters and static_graph",
    28: "SyncBatchNorm",
    32: "FSDP2 with CPU offload",
    33: "loading a full state dict from rank 0",
    34: "memory freed while another stream reads it",
    35: "a custom divide factor",
    39: "meshes of a group with device_id",
    42: "fewer microbatches than stages",
    43: "gradients over several schedule steps, types at a stage's border",
    46: "elapsed_time and query of events",
    47: "the streams of a backward pass",
    50: "saving, loading, copying, pickling",
    51: "running out of device memory",
    52: "autocast and GradScaler",
    53: "foreach and fused optimizers",
    54: "copies to the host that do not block",
    55: "reading the loss at every step; a device without an index",
    58: "more workers than cores, bad ranges",
    59: "two agents on one host",
    60: "elastic restart, and the end of an agent",
}


@pytest.fixture(scope="module", params=[2, 3], ids=["2ranks", "3ranks"])
def results(request: pytest.FixtureRequest) -> CheckResults:
    return run_checks(RANKS, request.param, env={"NEURON_EMU_LIMITS": "extended"})


@pytest.mark.parametrize("name", check_names(RANKS))
def test_field_case(results: CheckResults, name: str) -> None:
    results.verify(name)


def rows_with_tests() -> dict[int, list[str]]:
    """The tests of each row, by the docstrings."""
    rows: dict[int, list[str]] = {}
    for file in Path(__file__).parent.parent.glob("*/*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.FunctionDef) and node.name.startswith(("test_", "check_")):
                for number in re.findall(r"Field case (\d\d)\b", ast.get_docstring(node) or ""):
                    rows.setdefault(int(number), []).append(f"{file.name}::{node.name}")
    return rows


def test_every_row_has_a_test() -> None:
    tested = rows_with_tests()
    missing = {number: subject for number, subject in ROWS.items() if number not in tested}
    assert not missing, f"no docstring of a test says 'Field case NN' for {missing}"
