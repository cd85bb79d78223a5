"""examples/train_gpt.py: every way to spread it over workers gives the losses of CPU and gloo, and so does resuming."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from launch import RankResult, run_ranks, run_torchrun

EXAMPLE = Path(__file__).parents[2] / "examples" / "train_gpt.py"
STEPS = 6
TOLERANCE = 2e-4  # fp32 sums in another order, through six steps of AdamW


def losses_of(run: RankResult) -> dict[int, float]:
    assert run.returncode == 0, run.describe()
    found = re.findall(r"^step=(\d+) loss=([\d.]+) tokens/s=[\d,]+$", run.stdout, flags=re.MULTILINE)
    return {int(step): float(loss) for step, loss in found}


def train(workers: int, *flags: str) -> dict[int, float]:
    return losses_of(run_torchrun(EXAMPLE, workers, timeout=280, args=("--steps", str(STEPS), *flags)))


@pytest.fixture(scope="module")
def on_cpu() -> dict[int, float]:
    losses = train(2, "--device", "cpu")
    assert list(losses) == list(range(1, STEPS + 1))
    assert losses[STEPS] < losses[1]
    return losses


def test_two_stages(on_cpu: dict[int, float]) -> None:
    assert train(2, "--pp", "2") == pytest.approx(on_cpu, abs=TOLERANCE)


def test_four_workers_and_a_run_that_goes_on_with_two(on_cpu: dict[int, float], tmp_path: Path) -> None:
    """tp x pp saves; fsdp continues; together they are the unbroken run."""
    saved = ("--checkpoint", str(tmp_path), "--save-every", "2")
    first = train(4, "--tp", "2", "--pp", "2", *saved, "--steps", "4")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-2", "step-4"]
    second = train(2, *saved)
    assert list(second) == [5, 6]
    assert first | second == pytest.approx(on_cpu, abs=TOLERANCE)
    assert train(2, *saved) == {}, "nothing is left to do"


@pytest.mark.long
@pytest.mark.parametrize(
    ("workers", "flags"),
    [
        (1, ""),
        (2, ""),
        (2, "--tp 2"),
        (2, "--dp-mode ddp"),
        (4, "--tp 2"),
        (4, "--pp 2"),
        (4, "--pp 2 --dp-mode ddp"),
        (4, "--pp 4"),
        (4, "--tp 4"),
        (4, "--tp 2 --pp 2 --device cpu"),
        (8, "--tp 2 --pp 2"),
    ],
)
def test_every_split(on_cpu: dict[int, float], workers: int, flags: str) -> None:
    assert train(workers, *flags.split()) == pytest.approx(on_cpu, abs=TOLERANCE)


@pytest.mark.long
def test_a_run_that_goes_on_as_it_was(tmp_path: Path) -> None:
    """The same split before and after: the same numbers, digit by digit."""
    for flags in (("--tp", "2"), ("--pp", "2", "--dp-mode", "ddp")):
        folder = tmp_path / flags[0]
        unbroken = train(4, *flags)
        train(4, *flags, "--checkpoint", str(folder), "--steps", "3")
        assert unbroken.items() >= train(4, *flags, "--checkpoint", str(folder)).items()


@pytest.mark.parametrize(
    ("flags", "says"),
    [("--tp 3", "does not divide the 2 workers"), ("--pp 2 --batch 6", "--batch 6 is not a multiple of")],
)
def test_a_split_that_does_not_fit(flags: str, says: str) -> None:
    run = run_ranks(EXAMPLE, 1, env={"WORLD_SIZE": "2"}, args=flags.split())
    assert run.returncodes == [2], run.describe()
    assert says in run.stderr
