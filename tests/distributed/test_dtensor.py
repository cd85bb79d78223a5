"""DTensor and device meshes: placements, redistributions, operators, random numbers."""

from __future__ import annotations

from pathlib import Path

import pytest
from checks import CheckResults, check_names, run_checks
from launch import run_ranks

RANKS = Path(__file__).with_name("ranks_dtensor.py")


@pytest.fixture(scope="module", params=[2, 4], ids=["2ranks", "4ranks"])
def results(request: pytest.FixtureRequest) -> CheckResults:
    return run_checks(RANKS, request.param, timeout=280)


@pytest.mark.parametrize("name", check_names(RANKS))
def test_dtensor(results: CheckResults, name: str) -> None:
    results.verify(name)


WITH_DEVICE_ID = """
import os
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
import torch_neuronx

rank = int(os.environ["RANK"])
dist.init_process_group("neuron", device_id=torch.device("neuron", rank))
mesh = init_device_mesh("neuron", (2, 2), mesh_dim_names=("a", "b"))
flat = mesh["a", "b"]._flatten("ab")
ranks = {"a": [rank % 2, rank % 2 + 2], "b": [rank - rank % 2, rank - rank % 2 + 1], "ab": [0, 1, 2, 3]}
for name in ("a", "b", "ab"):
    group = flat.get_group() if name == "ab" else mesh.get_group(name)
    total = torch.tensor([float(rank)], device="neuron")
    dist.all_reduce(total, group=group)
    assert total.item() == sum(ranks[name]), (name, total)
    assert dist.get_process_group_ranks(group) == ranks[name]
dist.barrier()
dist.destroy_process_group()
"""


def test_meshes_of_a_group_with_device_id() -> None:
    """Field case 39: a group that is bound to its device makes meshes, their slices and flattened ones."""
    run_ranks(WITH_DEVICE_ID, 4).check()
