"""Rank side of test_pipeline.py: all ranks are one pipeline, in the default mode; each equals the whole model."""

from __future__ import annotations

import contextlib
import copy
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path

import torch
import torch.distributed as dist
from pipeline_parts import (
    BATCH,
    WIDTH,
    batch,
    check_schedule,
    layers,
    looped,
    one_each,
    schedule_of,
    stages_of,
    v_shaped,
)
from torch import nn
from torch.distributed.pipelining import (
    PipelineStage,
    Schedule1F1B,
    ScheduleDualPipeV,
    ScheduleGPipe,
    ScheduleInterleaved1F1B,
    ScheduleInterleavedZeroBubble,
    ScheduleLoopedBFS,
    ScheduleZBVZeroBubble,
    SplitPoint,
    pipeline,
)
from torch.distributed.pipelining.schedules import _Action, _PipelineScheduleRuntime

import torch_neuronx  # noqa: F401


@contextlib.contextmanager
def without_a_warning() -> Iterator[None]:
    """What the guide recommends breaks no limit of the product. These checks come first: a limit warns once."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        yield
    limits = [str(warning.message) for warning in told if "limit '" in str(warning.message)]
    assert not limits, limits


@without_a_warning()
def check_guide_snippet(rank: int, world_size: int) -> None:
    """The guide's two stages and its schedule, for as many stages as ranks: gradients of the whole model."""
    torch.manual_seed(0)
    whole = [nn.Sequential(nn.Linear(16, 16), nn.ReLU()) for _ in range(world_size)]
    inputs, target = torch.randn(8, 16), torch.randn(8, 16)
    stage_model = copy.deepcopy(whole[rank]).to("neuron")
    stage_device = next(stage_model.parameters()).device
    example_input = torch.empty(2, 16, device=stage_device, requires_grad=(rank > 0))
    example_output = torch.empty(2, 16, device=stage_device, requires_grad=True)
    stage = PipelineStage(
        stage_model,
        stage_index=rank,
        num_stages=world_size,
        device=stage_device,
        input_args=example_input,
        output_args=example_output,
        group=dist.group.WORLD,
    )
    schedule = Schedule1F1B(stage, n_microbatches=4, loss_fn=nn.MSELoss())
    if rank == 0:
        schedule.step(inputs.to(stage_device))
    elif rank == world_size - 1:
        schedule.step(target=target.to(stage_device))
    else:
        schedule.step()
    nn.functional.mse_loss(nn.Sequential(*whole)(inputs), target).backward()
    for mine, expected in zip(stage_model.parameters(), whole[rank].parameters(), strict=True):
        torch.testing.assert_close(mine.grad.cpu(), expected.grad, rtol=1e-5, atol=1e-6)


@without_a_warning()
def check_gpipe(rank: int, world_size: int) -> None:
    for with_metadata in (True, False):
        check_schedule(ScheduleGPipe, one_each, 4, with_metadata)


@without_a_warning()
def check_1f1b(rank: int, world_size: int) -> None:
    for with_metadata in (True, False):
        check_schedule(Schedule1F1B, one_each, 8, with_metadata)


def check_interleaved_1f1b(rank: int, world_size: int) -> None:
    for with_metadata in (True, False):
        check_schedule(ScheduleInterleaved1F1B, looped, 8, with_metadata)


def check_looped_bfs(rank: int, world_size: int) -> None:
    for with_metadata in (True, False):
        check_schedule(ScheduleLoopedBFS, looped, 4, with_metadata)


def check_interleaved_zero_bubble(rank: int, world_size: int) -> None:
    for with_metadata in (True, False):
        check_schedule(ScheduleInterleavedZeroBubble, looped, 8, with_metadata)


def check_zbv_zero_bubble(rank: int, world_size: int) -> None:
    for with_metadata in (True, False):
        check_schedule(ScheduleZBVZeroBubble, v_shaped, 8, with_metadata)


def check_dual_pipe_v(rank: int, world_size: int) -> None:
    for with_metadata in (True, False):
        check_schedule(ScheduleDualPipeV, v_shaped, 8, with_metadata)


def plan(world_size: int, microbatches: int) -> str:
    """A row of actions for each rank: two stages on it, all forwards, then backwards in two halves, the last first."""
    rows = []
    for rank in range(world_size):
        first, second = looped(rank, world_size)
        forward = [f"{stage}F{m}" for stage in (first, second) for m in range(microbatches)]
        backward = [f"{s}{half}{m}" for s in (second, first) for half in "IW" for m in range(microbatches)]
        rows.append(",".join([*forward, *backward]))
    return "\n".join(rows) + "\n"


def check_plan_from_a_file(rank: int, world_size: int) -> None:
    """A user's own schedule: computation only, and with the messages written out."""
    with tempfile.TemporaryDirectory() as folder:
        compute_only, with_messages = Path(folder) / "plan.csv", Path(folder) / "messages.csv"
        compute_only.write_text(plan(world_size, 4))

        def load(schedule: _PipelineScheduleRuntime) -> None:
            schedule._load_csv(str(compute_only))
            schedule._dump_csv(str(with_messages), "compute_comms")

        check_schedule(_PipelineScheduleRuntime, looped, 4, with_metadata=True, load=load)
        assert "SEND_F" in with_messages.read_text()
        check_schedule(
            _PipelineScheduleRuntime,
            looped,
            4,
            with_metadata=True,
            load=lambda schedule: schedule._load_csv(str(with_messages), "compute_comms"),
        )


def check_deferred_receives(rank: int, world_size: int) -> None:
    """Receives stand right before their use instead of as early as they can."""

    class Deferred(_PipelineScheduleRuntime):
        def __init__(self, *args: object, **options: object) -> None:
            super().__init__(*args, defer_pp_recv=True, **options)
            rows = plan(world_size, 4).splitlines()
            self._prepare_schedule_with_comms(
                {r: [_Action.from_str(a) for a in row.split(",")] for r, row in enumerate(rows)}
            )

    check_schedule(Deferred, looped, 4, with_metadata=True)


def check_fewer_microbatches_than_stages(rank: int, world_size: int) -> None:
    """Field case 42: refused when the schedule is made, or a right run; never a hang."""
    microbatches = world_size // 2
    for kind in (Schedule1F1B, ScheduleZBVZeroBubble, ScheduleDualPipeV):
        layout = one_each if kind is Schedule1F1B else v_shaped
        count = world_size * len(layout(rank, world_size))
        whole = layers(count)
        modules = {index: whole[index].to("neuron") for index in layout(rank, world_size)}
        stages = stages_of(modules, count, dist.group.WORLD, BATCH // microbatches)
        try:
            schedule_of(kind, stages, microbatches)
        except ValueError as error:
            assert "microbatches" in str(error)
        else:
            assert kind is ScheduleZBVZeroBubble
            check_schedule(kind, layout, microbatches, with_metadata=True)
    check_schedule(ScheduleGPipe, one_each, microbatches, with_metadata=True)
    check_schedule(ScheduleLoopedBFS, looped, microbatches, with_metadata=True)


def check_gradients_accumulate_unscaled(rank: int, world_size: int) -> None:
    """Field case 43: three steps without zero_grad; losses that are sums, gradients that are plain sums."""

    def loss_fn(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return (output - target).square().sum()

    for kind, layout in (
        (Schedule1F1B, one_each),
        (ScheduleInterleaved1F1B, looped),
        (ScheduleZBVZeroBubble, v_shaped),
    ):
        count = world_size * len(layout(rank, world_size))
        whole = layers(count)
        modules = {index: copy.deepcopy(whole[index]).to("neuron") for index in layout(rank, world_size)}
        schedule = schedule_of(
            kind, stages_of(modules, count, dist.group.WORLD, 2), 8, loss_fn=loss_fn, scale_grads=False
        )
        for step in range(3):
            inputs, target = batch(step)
            schedule.step(
                *([inputs.to("neuron")] if 0 in modules else []),
                target=target.to("neuron") if count - 1 in modules else None,
            )
            loss_fn(nn.Sequential(*whole)(inputs), target).backward()
        for index, module in modules.items():
            for mine, expected in zip(module.parameters(), whole[index].parameters(), strict=True):
                torch.testing.assert_close(mine.grad.cpu(), expected.grad, rtol=1e-4, atol=1e-3)


class Border(nn.Module):
    """Passes one tensor of each type on; only the floating ones carry gradients."""

    TYPES = (torch.bfloat16, torch.float16, torch.float64, torch.complex64, torch.int64, torch.uint8, torch.bool)

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor, *others: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = self.linear(x)
        if not others:
            marks = torch.arange(x.shape[0] * 3, device=x.device).reshape(x.shape[0], 3)
            others = tuple((marks % 2).bool() if t == torch.bool else marks.to(t) for t in self.TYPES)
        for tensor, dtype in zip(others, self.TYPES, strict=True):
            assert tensor.dtype == dtype
        return y, *others


def check_types_at_the_border(rank: int, world_size: int) -> None:
    """Any contiguous type passes from stage to stage, with values that each stage can only have from the first."""
    torch.manual_seed(0)
    whole = [Border() for _ in range(world_size)]
    mine = copy.deepcopy(whole[rank]).to("neuron")
    device = next(mine.parameters()).device
    inputs, target = batch(0)

    def loss_fn(output: tuple[torch.Tensor, ...], target: torch.Tensor) -> torch.Tensor:
        return nn.functional.mse_loss(output[0], target)

    schedule = Schedule1F1B(PipelineStage(mine, rank, world_size, device), n_microbatches=4, loss_fn=loss_fn)
    last = rank == world_size - 1
    outputs = schedule.step(*([inputs.to(device)] if rank == 0 else []), target=target.to(device) if last else None)
    x: tuple[torch.Tensor, ...] = (inputs,)
    for stage in whole:
        x = stage(*x)
    loss_fn(x, target).backward()
    for parameter, expected in zip(mine.parameters(), whole[rank].parameters(), strict=True):
        torch.testing.assert_close(parameter.grad.cpu(), expected.grad, rtol=1e-5, atol=1e-6)
    if last:
        marks = torch.arange(BATCH // 4 * 3).reshape(-1, 3).repeat(4, 1)
        for output, dtype in zip(outputs[1:], Border.TYPES, strict=True):
            expected = (marks % 2).bool() if dtype == torch.bool else marks.to(dtype)
            assert torch.equal(output.cpu(), expected), dtype


def check_eval_between_steps(rank: int, world_size: int) -> None:
    """eval() runs forward only and returns the whole batch's output on the last stage; training goes on after it."""
    first, last = rank == 0, rank == world_size - 1
    for rows in (BATCH // 4, None):
        whole = layers(world_size)
        module = copy.deepcopy(whole[rank]).to("neuron")
        schedule = schedule_of(Schedule1F1B, stages_of({rank: module}, world_size, dist.group.WORLD, rows), 4)
        for step in range(2):
            inputs, target = batch(step)
            here = [inputs.to("neuron")] if first else []
            there = target.to("neuron") if last else None
            with torch.no_grad():
                output = schedule.eval(*here, target=there)
            expected = nn.Sequential(*whole)(inputs)
            if last:
                torch.testing.assert_close(output.cpu(), expected, rtol=1e-5, atol=1e-5)
            for model in (module, *whole):
                model.zero_grad()
            schedule.step(*here, target=there)
            nn.functional.mse_loss(expected, target).backward()
            for mine, same in zip(module.parameters(), whole[rank].parameters(), strict=True):
                torch.testing.assert_close(mine.grad.cpu(), same.grad, rtol=1e-5, atol=1e-6)


def check_random_numbers_are_not_used_up(rank: int, world_size: int) -> None:
    """A stage that finds out its metadata runs the model once more: dropout is as with metadata."""
    seen = []
    for rows in (BATCH // 4, None):
        modules = {rank: nn.Sequential(layers(world_size)[rank], nn.Dropout(0.5)).to("neuron")}
        schedule = schedule_of(ScheduleGPipe, stages_of(modules, world_size, dist.group.WORLD, rows), 4)
        torch.manual_seed(7 + rank)
        inputs, target = (t.to("neuron") for t in batch(0))
        schedule.step(*([inputs] if rank == 0 else []), target=target if rank == world_size - 1 else None)
        seen.append([p.grad.cpu() for p in modules[rank].parameters()])
    for given, found in zip(*seen, strict=True):
        assert torch.equal(given, found)


def check_keyword_arguments(rank: int, world_size: int) -> None:
    """Every stage takes keywords of its own, cut into microbatches."""

    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = layers(world_size)[rank]

        def forward(self, x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
            return self.layer(x) * scale

    module = Scaled().to("neuron")
    device = torch.device("neuron", rank)
    inputs, target = batch(0)
    scales = [torch.linspace(0.5, 1.5, BATCH).unsqueeze(1) + r for r in range(world_size)]
    schedule = ScheduleGPipe(PipelineStage(module, rank, world_size, device), 4, loss_fn=nn.functional.mse_loss)
    output = schedule.step(
        *([inputs.to(device)] if rank == 0 else []),
        target=target.to(device) if rank == world_size - 1 else None,
        scale=scales[rank].to(device),
    )
    x = inputs
    for layer, scale in zip(layers(world_size), scales, strict=True):
        x = layer(x) * scale
    if rank == world_size - 1:
        torch.testing.assert_close(output.cpu(), x, rtol=1e-5, atol=1e-5)


def check_model_that_torch_splits(rank: int, world_size: int) -> None:
    """The other front end: a whole model is traced and cut at the layers that are named."""
    whole = nn.Sequential(*layers(world_size))
    traced = copy.deepcopy(whole).to("neuron")
    cuts = {str(index): SplitPoint.BEGINNING for index in range(1, world_size)}
    inputs, target = batch(0)
    pipe = pipeline(traced, mb_args=(inputs[: BATCH // 4].to("neuron"),), split_spec=cuts)
    stage = pipe.build_stage(rank, torch.device("neuron", rank), dist.group.WORLD)
    schedule = ScheduleGPipe(stage, 4, loss_fn=nn.functional.mse_loss)
    schedule.step(
        *([inputs.to("neuron")] if rank == 0 else []), target=target.to("neuron") if rank == world_size - 1 else None
    )
    nn.functional.mse_loss(whole(inputs), target).backward()
    mine = dict(stage.submod.named_parameters())
    assert {name.split(".")[0] for name in mine} == {str(rank)}
    for name, parameter in mine.items():
        expected = whole.get_parameter(name).grad
        torch.testing.assert_close(parameter.grad.cpu(), expected, rtol=1e-5, atol=1e-6)
