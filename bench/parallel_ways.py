"""What parallel_step_bench.py times: the GPT trained in parallel; each way gives, for a device, one step."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.distributed as dist
from gpt import GPT, loss_of
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

# One step; the loss, or nothing on ranks that have none.
Step = Callable[[], torch.Tensor | None]
MICROBATCHES = 4
VOCABULARY = 512


def _model(width: int, sequence: int) -> GPT:
    torch.manual_seed(0)
    return GPT(vocabulary=VOCABULARY, width=width, sequence=sequence)


def _tokens(device: str, batch: int, sequence: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(0, VOCABULARY, (batch, sequence + 1), generator=generator)
    return tokens[:, :-1].to(device), tokens[:, 1:].to(device)


def _step(model: nn.Module, tokens: torch.Tensor, targets: torch.Tensor, foreach: bool | None = None) -> Step:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=foreach)

    def step() -> torch.Tensor:
        optimizer.zero_grad()
        loss = loss_of(model, tokens, targets)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def plain(device: str, width: int, batch: int, sequence: int) -> Step:
    """Each rank its own model, without communication."""
    return _step(_model(width, sequence).to(device), *_tokens(device, batch, sequence, dist.get_rank()))


def ddp(device: str, width: int, batch: int, sequence: int) -> Step:
    model = DistributedDataParallel(_model(width, sequence).to(device))
    return _step(model, *_tokens(device, batch, sequence, dist.get_rank()))


def fsdp2(device: str, width: int, batch: int, sequence: int) -> Step:
    """Each block, and what is left, sharded."""
    model = _model(width, sequence).to(device)
    mesh = init_device_mesh(device, (dist.get_world_size(),))
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return _step(model, *_tokens(device, batch, sequence, dist.get_rank()))


def tp(device: str, width: int, batch: int, sequence: int) -> Step:
    """The MLPs split over the ranks; all ranks see the same tokens."""
    model = _model(width, sequence).to(device)
    mesh = init_device_mesh(device, (dist.get_world_size(),))
    for block in model.blocks:
        parallelize_module(block, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})
    # Parameters that are DTensors beside such that are none: no foreach operator takes both.
    return _step(model, *_tokens(device, batch, sequence, 0), foreach=False)


class Stage(nn.Module):
    """The layers of one rank; token ids or activations (batch, sequence[, width]) -> activations or logits."""

    def __init__(self, model: GPT, rank: int, world: int) -> None:
        super().__init__()
        layers = list(model.blocks)
        each = -(-len(layers) // world)
        self.blocks = nn.ModuleList(layers[rank * each : (rank + 1) * each])
        self.embedding = nn.ModuleList([model.token, model.position]) if rank == 0 else None
        self.head = nn.Sequential(model.norm, model.head) if rank == world - 1 else None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.embedding is not None:
            token, position = self.embedding
            x = token(x) + position(torch.arange(x.shape[1], device=x.device))
        for block in self.blocks:
            x = block(x)
        return x if self.head is None else self.head(x)


def pipeline(device: str, width: int, batch: int, sequence: int) -> Step:
    """A stage on each rank, 1F1B over 4 microbatches of `batch` rows in all."""
    rank, world = dist.get_rank(), dist.get_world_size()
    module = Stage(_model(width, sequence), rank, world).to(device)
    place = torch.device(device) if device == "cpu" else torch.device(device, torch.neuron.current_device())
    stage = PipelineStage(module, rank, world, place)
    schedule = Schedule1F1B(
        stage, MICROBATCHES, loss_fn=lambda logits, targets: F.cross_entropy(logits.flatten(0, 1), targets.flatten())
    )
    optimizer = torch.optim.AdamW(module.parameters(), lr=1e-3)
    tokens, targets = _tokens(device, batch, sequence, 0)

    def step() -> torch.Tensor | None:
        optimizer.zero_grad()
        losses: list[torch.Tensor] = []
        if rank == 0:
            schedule.step(tokens)
        elif rank == world - 1:
            schedule.step(target=targets, losses=losses)
        else:
            schedule.step()
        optimizer.step()
        return torch.stack(losses).mean().detach() if losses else None

    return step


WAYS: dict[str, Callable[[str, int, int, int], Step]] = {
    "plain": plain,
    "ddp": ddp,
    "fsdp2": fsdp2,
    "tp": tp,
    "pipeline": pipeline,
}
