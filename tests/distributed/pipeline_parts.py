"""A model in stages, trained by a schedule of torch.distributed.pipelining or whole on the CPU: the same numbers."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist
from full_tensor import full
from torch import nn
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import PipelineScheduleSingle

WIDTH, BATCH, STEPS = 16, 16, 10
# fp32 sums over microbatches instead of over the batch, ten times.
TOLERANCE = {"rtol": 1e-4, "atol": 1e-5}


class Layer(nn.Module):
    """One stage's part: (rows, WIDTH) -> (rows, WIDTH)."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(nn.functional.gelu(self.up(x)))


def layers(count: int) -> list[nn.Module]:
    """The whole model, the same on every rank, on the CPU."""
    torch.manual_seed(0)
    return [Layer() for _ in range(count)]


def batch(step: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(100 + step)
    inputs = torch.randn(BATCH, WIDTH, generator=generator)
    return inputs, inputs.flip(1)


def optimizer_of(parameters: Sequence[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.05, momentum=0.9)


@dataclass
class Trained:
    losses: list[float]  # of each step; empty on ranks without the last stage
    parameters: dict[str, torch.Tensor]  # "stage.name" -> value, of this rank's stages


@functools.cache
def trained_whole(count: int) -> Trained:
    """What every combination has to equal."""
    model = nn.ModuleList(layers(count))
    optimizer = optimizer_of(list(model.parameters()))
    losses = []
    for step in range(STEPS):
        x, target = batch(step)
        optimizer.zero_grad()
        for layer in model:
            x = layer(x)
        loss = nn.functional.mse_loss(x, target)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return Trained(losses, {name: p.detach() for name, p in model.named_parameters()})


def looped(rank: int, size: int) -> list[int]:
    return [rank, rank + size]


def v_shaped(rank: int, size: int) -> list[int]:
    return [rank, 2 * size - 1 - rank]


def one_each(rank: int, size: int) -> list[int]:
    return [rank]


Layout = Callable[[int, int], list[int]]


def stages_of(
    modules: dict[int, nn.Module], count: int, group: dist.ProcessGroup, rows: int | None
) -> list[PipelineStage]:
    """`rows` in a microbatch: stages with example metadata, as the guide has them; None: stages find out."""
    device = torch.device("neuron", torch.neuron.current_device())
    stages = []
    for index, module in modules.items():
        examples = {}
        if rows is not None:
            examples["input_args"] = torch.empty(rows, WIDTH, device=device, requires_grad=index > 0)
            examples["output_args"] = torch.empty(rows, WIDTH, device=device, requires_grad=True)
        stages.append(PipelineStage(module, index, count, device, group=group, **examples))
    return stages


def schedule_of(kind: type, stages: list[PipelineStage], microbatches: int, **options: object):
    single = issubclass(kind, PipelineScheduleSingle)
    options = {"loss_fn": nn.functional.mse_loss, **options}
    return kind(stages[0] if single else stages, n_microbatches=microbatches, **options)


def run_steps(schedule: object, modules: dict[int, nn.Module], count: int, part: tuple[int, int] = (0, 1)) -> Trained:
    """Trains for STEPS steps. `part` = (i, n): this replica's batch is rows i, i + n, … of the whole."""
    optimizer = optimizer_of([p for module in modules.values() for p in module.parameters()])
    losses = []
    for step in range(STEPS):
        inputs, target = (t[part[0] :: part[1]].to("neuron") for t in batch(step))
        optimizer.zero_grad()
        of_microbatches: list[torch.Tensor] = []
        schedule.step(
            *([inputs] if 0 in modules else []),
            target=target if count - 1 in modules else None,
            losses=of_microbatches,
        )
        optimizer.step()
        if of_microbatches:
            losses.append(torch.stack(of_microbatches).mean())
    parameters = {
        f"{index}.{name.removeprefix('module.')}": full(p)
        for index, module in modules.items()
        for name, p in module.named_parameters()
    }
    return Trained([loss.item() for loss in losses], parameters)


def assert_as_whole(trained: Trained, count: int) -> None:
    whole = trained_whole(count)
    if trained.losses:
        torch.testing.assert_close(trained.losses, whole.losses, **TOLERANCE)
    assert trained.parameters
    for name, value in trained.parameters.items():
        torch.testing.assert_close(value, whole.parameters[name], **TOLERANCE, msg=lambda text, n=name: f"{n}: {text}")


def check_schedule(
    kind: type, layout: Layout, microbatches: int, with_metadata: bool, load: Callable[[object], None] | None = None
) -> None:
    """All ranks are one pipeline; `load` gives a schedule its plan, where it has none of its own."""
    rank, size = dist.get_rank(), dist.get_world_size()
    count = size * len(layout(rank, size))
    whole = layers(count)
    modules = {index: copy.deepcopy(whole[index]).to("neuron") for index in layout(rank, size)}
    rows = BATCH // microbatches if with_metadata else None
    schedule = schedule_of(kind, stages_of(modules, count, dist.group.WORLD, rows), microbatches)
    if load is not None:
        load(schedule)
    trained = run_steps(schedule, modules, count)
    assert bool(trained.losses) == (count - 1 in modules)
    assert_as_whole(trained, count)
