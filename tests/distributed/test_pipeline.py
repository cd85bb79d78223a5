"""torch.distributed.pipelining in the default mode: losses and parameters after 10 steps are the whole model's."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from checks import CheckResults, check_names, run_checks
from launch import run_ranks, run_torchrun

RANKS = Path(__file__).with_name("ranks_pipeline.py")
MIXED = Path(__file__).with_name("ranks_pipeline_mixed.py")
EXAMPLE = Path(__file__).parents[2] / "examples" / "pipeline.py"


@pytest.fixture(scope="module", params=[2, 4], ids=["2ranks", "4ranks"])
def results(request: pytest.FixtureRequest) -> CheckResults:
    return run_checks(RANKS, request.param, timeout=280)


@pytest.mark.parametrize("name", check_names(RANKS))
def test_pipeline(results: CheckResults, name: str) -> None:
    results.verify(name)


@pytest.fixture(scope="module")
def mixed() -> CheckResults:
    return run_checks(MIXED, 4, timeout=280)


@pytest.mark.parametrize("name", check_names(MIXED))
def test_beside_another_parallelism(mixed: CheckResults, name: str) -> None:
    mixed.verify(name)


def test_guide_example() -> None:
    run = run_torchrun(EXAMPLE, 2)
    assert run.returncode == 0, run.describe()
    found = re.findall(r"^rank=(\d): stage=(\d) gradient_norm=([\d.]+)$", run.stdout, flags=re.MULTILINE)
    assert sorted((rank, stage) for rank, stage, _ in found) == [("0", "0"), ("1", "1")], run.describe()
    assert all(float(norm) > 0 for _, _, norm in found), run.describe()


WRONG_TYPE = """
import torch, torch.distributed as dist, torch_neuronx
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
dist.init_process_group("neuron")
rank = dist.get_rank()
module = torch.nn.Linear(16, 16).to("neuron", torch.bfloat16 if rank == 0 else torch.float32)
device = next(module.parameters()).device
example = torch.empty(2, 16, device=device, requires_grad=True)
given = example.detach() if rank == 0 else example
stage = PipelineStage(module, rank, 2, device, input_args=given, output_args=example)
schedule = Schedule1F1B(stage, n_microbatches=4, loss_fn=torch.nn.MSELoss())
if rank == 0:
    schedule.step(torch.randn(8, 16, device=device, dtype=torch.bfloat16))
else:
    schedule.step(target=torch.randn(8, 16, device=device))
torch.neuron.synchronize()
"""


def test_a_type_that_differs_from_the_metadata(tmp_path: Path) -> None:
    """Field case 43: bf16 leaves the first stage where both declare fp32. An error on both ranks, that names both."""
    run = run_ranks(WRONG_TYPE, 2, env={"TORCH_FR_DUMP_TEMP_FILE": str(tmp_path / "rank_")})
    for rank in run.ranks:
        assert rank.returncode not in (0, None), rank.describe()
        assert "bfloat16" in rank.stderr and "float32" in rank.stderr, rank.describe()
        assert "DistBackendError" in rank.stderr and "recv(" in rank.stderr, rank.describe()
