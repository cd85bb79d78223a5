"""Small models of the families that people train, each with its batches: for a loss that falls within 20 steps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn

VOCABULARY, LENGTH, WIDTH, HEADS = 64, 16, 32, 4


class ConvBlock(nn.Module):
    """ResNet's basic block: two 3x3 convolutions beside a shortcut."""

    def __init__(self, inner: int, outer: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inner, outer, 3, stride, 1, bias=False)
        self.conv2 = nn.Conv2d(outer, outer, 3, 1, 1, bias=False)
        self.norm1, self.norm2 = nn.BatchNorm2d(outer), nn.BatchNorm2d(outer)
        self.shortcut = nn.Conv2d(inner, outer, 1, stride, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = F.relu(self.norm1(self.conv1(x)))
        return F.relu(self.norm2(self.conv2(y)) + self.shortcut(x))


def resnet() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1, bias=False),
        nn.BatchNorm2d(8),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(3, 2, 1),
        ConvBlock(8, 8, 1),
        ConvBlock(8, 16, 2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(16, 4),
    )


class Attention(nn.Module):
    def __init__(self, causal: bool) -> None:
        super().__init__()
        self.causal = causal
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, _ = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        return self.out(y.transpose(1, 2).reshape(batch, length, WIDTH))


class Experts(nn.Module):
    """Mixture of four experts, the best two for each token. `dropless`: each expert gathers its tokens, whose number
    the host must know; otherwise every expert sees every token, weighted.
    """

    def __init__(self, dropless: bool) -> None:
        super().__init__()
        self.dropless = dropless
        self.gate = nn.Linear(WIDTH, 4, bias=False)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(WIDTH, 2 * WIDTH), nn.SiLU(), nn.Linear(2 * WIDTH, WIDTH)) for _ in range(4)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        flat = x.reshape(-1, WIDTH)
        weights, chosen = self.gate(flat).softmax(-1).topk(2, dim=-1)
        if not self.dropless:
            dense = torch.zeros(flat.shape[0], 4, device=x.device).scatter(1, chosen, weights)
            outputs = torch.stack([expert(flat) for expert in self.experts], dim=1)
            return (outputs * dense.unsqueeze(-1)).sum(1).view_as(x)
        result = torch.zeros_like(flat)
        for index, expert in enumerate(self.experts):
            token, place = torch.where(chosen == index)
            result = result.index_add(0, token, expert(flat[token]) * weights[token, place, None])
        return result.view_as(x)


class TransformerBlock(nn.Module):
    def __init__(self, causal: bool, mixer: nn.Module | None = None, dropout: float = 0.0) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attention = Attention(causal)
        self.mixer = mixer or nn.Sequential(
            nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH), nn.Dropout(dropout)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.mixer(self.norm2(x))


class Language(nn.Module):
    """Token ids (batch, length) -> logits (batch, length, VOCABULARY); the head's weights are the embedding's."""

    def __init__(self, *blocks: nn.Module) -> None:
        super().__init__()
        self.token, self.place = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.Sequential(*blocks)
        self.norm, self.head = nn.RMSNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY, bias=False)
        self.head.weight = self.token.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.token(tokens) + self.place(torch.arange(tokens.shape[1], device=tokens.device))
        return self.head(self.norm(self.blocks(x)))


def gpt(dropout: float = 0.0) -> Language:
    return Language(*(TransformerBlock(True, dropout=dropout) for _ in range(2)))


class Recurrent(nn.Module):
    """Two bidirectional LSTM layers over token ids -> logits."""

    def __init__(self) -> None:
        super().__init__()
        self.token = nn.Embedding(VOCABULARY, WIDTH)
        self.lstm = nn.LSTM(WIDTH, WIDTH, num_layers=2, bidirectional=True, batch_first=True)
        self.head = nn.Linear(2 * WIDTH, VOCABULARY)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.lstm(self.token(tokens))[0])


class UNetBlock(nn.Module):
    """A diffusion model's step down and up again, with a time embedding, group norms and attention in the middle."""

    def __init__(self) -> None:
        super().__init__()
        self.time = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.SiLU(), nn.Linear(WIDTH, WIDTH))
        self.stem, self.down = nn.Conv2d(3, WIDTH, 3, padding=1), nn.Conv2d(WIDTH, WIDTH, 3, stride=2, padding=1)
        self.norm1, self.norm2 = nn.GroupNorm(8, WIDTH), nn.GroupNorm(8, 2 * WIDTH)
        self.attention = Attention(causal=False)
        self.up = nn.ConvTranspose2d(WIDTH, WIDTH, 2, stride=2)
        self.out = nn.Conv2d(2 * WIDTH, 3, 3, padding=1)

    def forward(self, image: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
        frequencies = torch.exp(torch.linspace(0, -4, WIDTH // 2, device=image.device))
        angles = time[:, None] * frequencies
        embedded = self.time(torch.cat([angles.sin(), angles.cos()], dim=-1))
        wide = F.silu(self.norm1(self.stem(image))) + embedded[:, :, None, None]
        low = self.down(wide)
        batch, channels, height, width = low.shape
        low = low + self.attention(low.flatten(2).transpose(1, 2)).transpose(1, 2).view(batch, channels, height, width)
        both = torch.cat([self.up(F.interpolate(low, scale_factor=1.0)), wide], dim=1)
        return self.out(F.silu(self.norm2(both)))


class Vision(nn.Module):
    """ViT: patches of 4x4, a class token, two blocks."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, WIDTH, 4, stride=4)
        self.first = nn.Parameter(torch.zeros(1, 1, WIDTH))
        self.place = nn.Parameter(torch.randn(1, 17, WIDTH) * 0.02)
        self.blocks = nn.Sequential(TransformerBlock(False), TransformerBlock(False))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 4)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        x = self.patches(image).flatten(2).transpose(1, 2)
        x = torch.cat([self.first.expand(x.shape[0], -1, -1), x], dim=1) + self.place
        return self.head(self.norm(self.blocks(x))[:, 0])


Batch = tuple[torch.Tensor, ...]


def _images(generator: torch.Generator) -> Batch:
    classes = torch.randint(0, 4, (8,), generator=generator)
    images = torch.randn(8, 3, 16, 16, generator=generator)
    images[:, 0] += classes[:, None, None]
    return images, classes


def _tokens(generator: torch.Generator) -> Batch:
    start = torch.randint(0, VOCABULARY, (4, 1), generator=generator)
    tokens = (start + 3 * torch.arange(LENGTH + 1)) % VOCABULARY
    return tokens[:, :-1], tokens[:, 1:]


def _noise(generator: torch.Generator) -> Batch:
    time = torch.rand(4, generator=generator)
    clean = torch.ones(4, 3, 8, 8) * torch.linspace(-1, 1, 8)
    noise = torch.randn(4, 3, 8, 8, generator=generator)
    return clean + time[:, None, None, None] * noise, time, noise


def _classified(model: nn.Module, batch: Batch) -> torch.Tensor:
    inputs, classes = batch
    return F.cross_entropy(model(inputs).flatten(0, -2), classes.flatten())


def _denoised(model: nn.Module, batch: Batch) -> torch.Tensor:
    noisy, time, noise = batch
    return F.mse_loss(model(noisy, time), noise)


@dataclass(frozen=True)
class Case:
    make: Callable[[], nn.Module]
    batch: Callable[[torch.Generator], Batch]
    loss: Callable[[nn.Module, Batch], torch.Tensor]
    waits: frozenset[str] = frozenset()  # operators whose results' sizes the host must know, on any device


CASES = {
    "resnet": Case(resnet, _images, _classified),
    "gpt": Case(gpt, _tokens, _classified),
    "lstm": Case(Recurrent, _tokens, _classified),
    "moe": Case(lambda: Language(TransformerBlock(True, Experts(False))), _tokens, _classified),
    "moe-dropless": Case(
        lambda: Language(TransformerBlock(True, Experts(True))), _tokens, _classified, frozenset({"aten::nonzero"})
    ),
    "unet": Case(UNetBlock, _noise, _denoised),
    "vit": Case(Vision, _images, _classified),
}
