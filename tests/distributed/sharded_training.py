"""A small model, sharded by FSDP2 and trained on one device: the same on `neuron` and on CPU + gloo, to compare."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
import torch.distributed as dist
from full_tensor import full
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard

WIDTH, BATCH, STEPS = 16, 8, 10

# A reduction adds in another order than gloo's; ten steps of AdamW amplify that little.
CLOSE = {"rtol": 1e-4, "atol": 1e-5}


class Block(nn.Module):
    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, inner), nn.Linear(inner, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(nn.functional.gelu(self.up(self.norm(x))))


def blocks(count: int = 3, width: int = WIDTH, inner: int = 4 * WIDTH) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(*(Block(width, inner) for _ in range(count)))


Shard = Callable[[nn.Module, DeviceMesh], None]


def shard_blocks(model: nn.Module, mesh: DeviceMesh, **options: object) -> None:
    """As the guide does it: the blocks, then the root."""
    for block in model.children():
        fully_shard(block, mesh=mesh, **options)
    fully_shard(model, mesh=mesh, **options)


def world_mesh(device: str, shape: tuple[int, ...] | None = None) -> DeviceMesh:
    shape = shape or (dist.get_world_size(),)
    names = ("dp",) if len(shape) == 1 else ("replicate", "shard")
    return init_device_mesh(device, shape, mesh_dim_names=names)


@dataclass
class Trained:
    losses: list[float]
    parameters: list[torch.Tensor]
    model: nn.Module
    optimizer: torch.optim.Optimizer


def batch(step: int, device: str, width: int = WIDTH) -> torch.Tensor:
    """What this rank trains on in this step."""
    seed = 1000 * (dist.get_rank() + 1) + step
    return torch.randn(BATCH, width, generator=torch.Generator().manual_seed(seed)).to(device)


def mean_over_ranks(losses: Iterable[torch.Tensor]) -> list[float]:
    mine = torch.stack([loss.detach().float().cpu() for loss in losses])
    dist.all_reduce(mine)
    return (mine / dist.get_world_size()).tolist()


def fit(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    device: str,
    *,
    steps: int = STEPS,
    width: int = WIDTH,
    after_backward: Callable[[nn.Module], object] = lambda model: None,
) -> Trained:
    """Trains a model, sharded or not, to turn its input round."""
    losses = []
    for step in range(steps):
        optimizer.zero_grad()
        inputs = batch(step, device, width)
        loss = (model(inputs) - inputs.flip(1)).float().square().mean()
        loss.backward()
        after_backward(model)
        optimizer.step()
        losses.append(loss)
    return Trained(mean_over_ranks(losses), [full(p) for p in model.parameters()], model, optimizer)


def train(
    device: str,
    shard: Shard = shard_blocks,
    *,
    mesh_shape: tuple[int, ...] | None = None,
    model: nn.Module | None = None,
    **options: object,
) -> Trained:
    model = (blocks() if model is None else model).to(device)
    shard(model, world_mesh(device, mesh_shape))
    return fit(model, torch.optim.AdamW(model.parameters(), lr=1e-2), device, **options)


def assert_trained_alike(ours: Trained, theirs: Trained, **tolerance: float) -> None:
    torch.testing.assert_close(ours.losses, theirs.losses, **(tolerance or CLOSE))
    torch.testing.assert_close(ours.parameters, theirs.parameters, **(tolerance or CLOSE))
    assert ours.losses[-1] < ours.losses[0]


def assert_same_bits(ours: Trained, theirs: Trained) -> None:
    assert ours.losses == theirs.losses
    for mine, other in zip(ours.parameters, theirs.parameters, strict=True):
        assert torch.equal(mine, other)
