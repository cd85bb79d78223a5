"""A decoder whose layers can be split over ranks: query, key and value apart, heads counted from the local width; and
its batches, the same on all ranks.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn

VOCABULARY, LENGTH, WIDTH, HEAD_WIDTH, STEPS = 64, 16, 32, 4, 10

Batch = tuple[torch.Tensor, torch.Tensor]


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value, self.out = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (
            layer(x).unflatten(-1, (-1, HEAD_WIDTH)).transpose(1, 2) for layer in (self.query, self.key, self.value)
        )
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).flatten(2))


class FeedForward(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(F.gelu(self.up(x)))


class Block(nn.Module):
    def __init__(self, mixer: nn.Module) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.RMSNorm(WIDTH)
        self.attention, self.mixer = Attention(), mixer

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.mixer(self.norm2(x))


class Decoder(nn.Module):
    """Token ids (batch, length) -> logits (batch, length, VOCABULARY)."""

    def __init__(self, mixer: Callable[[], nn.Module] = FeedForward) -> None:
        super().__init__()
        self.token = nn.Embedding(VOCABULARY, WIDTH)
        self.blocks = nn.Sequential(*(Block(mixer()) for _ in range(2)))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.norm(self.blocks(self.token(tokens))))


def decoder(mixer: Callable[[], nn.Module] = FeedForward) -> Decoder:
    torch.manual_seed(0)
    return Decoder(mixer)


def batches(steps: int = STEPS) -> list[Batch]:
    """Sequences that count upward in steps of three."""
    generator = torch.Generator().manual_seed(1)
    starts = torch.randint(0, VOCABULARY, (steps, 8, 1), generator=generator)
    tokens = (starts + 3 * torch.arange(LENGTH + 1)) % VOCABULARY
    return [(batch[:, :-1].contiguous(), batch[:, 1:].contiguous()) for batch in tokens]


def loss_of(model: nn.Module, tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(model(tokens).flatten(0, 1), targets.flatten())


def train_alone(model: nn.Module) -> tuple[list[float], dict[str, torch.Tensor]]:
    """On the CPU, with all parameters and the whole batch: losses, and parameters after the last step."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    losses = []
    for tokens, targets in batches():
        optimizer.zero_grad()
        loss = loss_of(model, tokens, targets)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, {name: parameter.detach() for name, parameter in model.named_parameters()}
