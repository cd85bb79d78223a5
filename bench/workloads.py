"""What train_step_bench.py times: each gives, for a device, a function that does one step; all from the same seeds."""

from __future__ import annotations

from collections.abc import Callable

import torch
from gpt import GPT, loss_of
from resnet import resnet18
from torch import nn
from torch.nn import functional as F

Step = Callable[[], None]


def _training_step(model: nn.Module, optimizer: torch.optim.Optimizer, loss: Callable[[], torch.Tensor]) -> Step:
    def step() -> None:
        optimizer.zero_grad()
        loss().backward()
        optimizer.step()

    return step


def gpt(device: str, batch: int, sequence: int) -> Step:
    """4 layers, d=256, vocabulary 512; AdamW."""
    torch.manual_seed(0)
    vocabulary = 512
    model = GPT(vocabulary=vocabulary, sequence=sequence).to(device)
    tokens = torch.randint(0, vocabulary, (batch, sequence + 1), generator=torch.Generator().manual_seed(1))
    inputs, targets = tokens[:, :-1].to(device), tokens[:, 1:].to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    return _training_step(model, optimizer, lambda: loss_of(model, inputs, targets))


def resnet(device: str, batch: int, sequence: int) -> Step:
    """ResNet-18 on `batch` images of 64x64; SGD with momentum."""
    torch.manual_seed(0)
    model = resnet18(classes=10).to(device)
    images = torch.randn(batch, 3, 64, 64, generator=torch.Generator().manual_seed(1)).to(device)
    classes = torch.arange(batch, device=device) % 10
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    return _training_step(model, optimizer, lambda: F.cross_entropy(model(images), classes))


def mlp(device: str, batch: int, sequence: int) -> Step:
    """8 layers of 64 by 64, `batch` rows: the host is the bottleneck; SGD."""
    torch.manual_seed(0)
    layers = [layer for _ in range(8) for layer in (nn.Linear(64, 64), nn.ReLU())]
    model = nn.Sequential(*layers).to(device)
    inputs = torch.randn(batch, 64, generator=torch.Generator().manual_seed(1)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    return _training_step(model, optimizer, lambda: model(inputs).square().mean())


def adamw(device: str, batch: int, sequence: int) -> Step:
    """Only the optimizer's step, foreach, over 300 tensors of 16 to 1024 elements."""
    torch.manual_seed(0)
    parameters = [nn.Parameter(torch.randn(16 * (1 + i % 64)).to(device)) for i in range(300)]
    for parameter in parameters:
        parameter.grad = torch.ones_like(parameter)
    optimizer = torch.optim.AdamW(parameters, lr=1e-3, foreach=True)
    return lambda: optimizer.step()


# Steps a round: some 10 to 100 ms on a processor of today.
WORKLOADS: dict[str, tuple[Callable[[str, int, int], Step], int]] = {
    "gpt": (gpt, 2),
    "resnet": (resnet, 1),
    "mlp": (mlp, 40),
    "adamw": (adamw, 10),
}
