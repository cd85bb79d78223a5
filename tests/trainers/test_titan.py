"""TorchTitan 0.2.2, unchanged, trains its Llama 3 debug model on `neuron`: `make test-titan`.

All runs start from one checkpoint, in fp32; those with the same number of replicas see the same batches. So every split
of the model has to give the losses of the CPU, in the default mode of the limits.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from assets import write_text, write_tokenizer
from launch import base_environment

STEPS = 4
ON_CPU = Path(__file__).with_name("on_cpu.py")
TRAINER = ("-m", "torchtitan.train")
TENSOR, CONTEXT = ("--parallelism.tensor_parallel_degree", "2"), ("--parallelism.context_parallel_degree", "2")
PIPELINE = ("--parallelism.pipeline_parallel_degree", "2", "--parallelism.pipeline_parallel_schedule")


class Titan:
    """Runs of the trainer, each with a folder of its own below `root`."""

    def __init__(self, root: Path) -> None:
        self.root = root
        write_tokenizer(root / "tokenizer")
        write_text(root / "text")
        self.run("seed", 1, "--checkpoint.create_seed_checkpoint", program=(str(ON_CPU),))

    def flags(self, folder: Path) -> list[str]:
        values = {
            "model.name": "llama3",
            "model.flavor": "debugmodel",
            "model.hf_assets_path": self.root / "tokenizer",
            "training.dataset": "c4_test",
            "training.dataset_path": self.root / "text",
            "training.local_batch_size": 4,
            "training.seq_len": 64,
            "training.steps": STEPS,
            "training.mixed_precision_param": "float32",
            "metrics.log_freq": 1,
            "checkpoint.interval": 100,
            "debug.seed": 1,
            "job.dump_folder": folder,
        }
        return [f"--{name}={value}" for name, value in values.items()] + ["--checkpoint.enable"]

    def run(self, name: str, workers: int, *flags: str, program: Sequence[str] = TRAINER) -> dict[int, float]:
        """The losses by step."""
        launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={workers}"]
        environment = {"HF_HUB_OFFLINE": "1", "HF_HOME": str(self.root / "cache"), "NO_COLOR": "1"}
        if program is not TRAINER:
            environment["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
        done = subprocess.run(
            [*launcher, *program, *self.flags(self.root / name), *flags],
            env=base_environment(environment),
            cwd=self.root,
            capture_output=True,
            text=True,
            timeout=900,
        )
        said = done.stdout + done.stderr
        assert done.returncode == 0, said[-8000:]
        # Ranks without the last stage of a pipeline show a negative one.
        plain = re.sub(r"\x1b\[[\d;]*m", "", said)
        return {int(step): float(loss) for step, loss in re.findall(r"step: *(\d+) +loss: +(\d[\d.]*)", plain)}

    def train(self, name: str, workers: int, *flags: str, program: Sequence[str] = TRAINER) -> dict[int, float]:
        seed = ("--checkpoint.initial_load_path", str(self.root / "seed" / "checkpoint" / "step-0"))
        return self.run(name, workers, *seed, *flags, program=program)


@pytest.fixture(scope="module")
def titan(tmp_path_factory: pytest.TempPathFactory) -> Titan:
    return Titan(tmp_path_factory.mktemp("titan"))


@pytest.fixture(scope="module")
def expected(titan: Titan) -> dict[int, dict[int, float]]:
    """The losses on the CPU, by the number of replicas."""
    losses = {replicas: titan.train(f"cpu{replicas}", replicas, program=(str(ON_CPU),)) for replicas in (1, 2)}
    assert all(list(by_step) == list(range(1, STEPS + 1)) for by_step in losses.values())
    return losses


@pytest.mark.parametrize(
    ("workers", "replicas", "flags"),
    [
        pytest.param(2, 2, (), id="fsdp"),
        pytest.param(2, 1, TENSOR, id="tp"),
        pytest.param(2, 1, (*PIPELINE, "1F1B"), id="pp"),
        pytest.param(2, 1, CONTEXT, id="cp"),
        pytest.param(4, 2, TENSOR, id="fsdp-tp"),
        pytest.param(4, 2, (*PIPELINE, "Interleaved1F1B"), id="fsdp-pp"),
        pytest.param(4, 2, CONTEXT, id="fsdp-cp"),
        pytest.param(4, 1, (*TENSOR, *PIPELINE, "1F1B"), id="tp-pp"),
        pytest.param(4, 1, (*TENSOR, *CONTEXT), id="tp-cp"),
        pytest.param(4, 1, (*CONTEXT, *PIPELINE, "1F1B"), id="pp-cp"),
    ],
)
def test_losses(
    titan: Titan,
    expected: dict[int, dict[int, float]],
    request: pytest.FixtureRequest,
    workers: int,
    replicas: int,
    flags: tuple[str, ...],
) -> None:
    losses = titan.train(request.node.callspec.id, workers, *flags)
    assert losses == pytest.approx(expected[replicas], abs=1e-3)


@pytest.mark.parametrize(
    ("workers", "flags"),
    [
        pytest.param(2, (), id="fsdp"),
        pytest.param(4, TENSOR, id="fsdp-tp"),
        pytest.param(4, (*TENSOR, *PIPELINE, "1F1B"), id="tp-pp"),
    ],
)
def test_resumes(titan: Titan, request: pytest.FixtureRequest, workers: int, flags: tuple[str, ...]) -> None:
    """The steps after a checkpoint, run again, print what they printed."""
    name = f"resumes-{request.node.callspec.id}"
    whole = titan.train(name, workers, *flags, "--checkpoint.interval=2")
    checkpoints = titan.root / name / "checkpoint"
    shutil.rmtree(checkpoints / f"step-{STEPS}")
    again = titan.run(name, workers, *flags, "--checkpoint.interval=2")
    assert again == {step: whole[step] for step in range(3, STEPS + 1)}
    assert (checkpoints / f"step-{STEPS}").exists()
