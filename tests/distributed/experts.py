"""A mixture of experts whose experts can be spread over ranks: each token goes to the best of four, and back."""

from __future__ import annotations

import torch
import torch.distributed._functional_collectives as functional
import torch.nn.functional as F
from decoder import WIDTH
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Shard, distribute_tensor

EXPERTS = 4


class RoutedExperts(nn.Module):
    """All experts here, until `spread`."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(WIDTH, EXPERTS, bias=False)
        self.up = nn.Parameter(torch.randn(EXPERTS, WIDTH, 2 * WIDTH) * 0.2)
        self.down = nn.Parameter(torch.randn(EXPERTS, 2 * WIDTH, WIDTH) * 0.2)
        self.mesh: DeviceMesh | None = None

    def spread(self, mesh: DeviceMesh) -> None:
        """Each rank of the mesh keeps its part of the experts, and has tokens of its own."""
        self.mesh = mesh
        self.up = nn.Parameter(distribute_tensor(self.up.detach(), mesh, [Shard(0)]))
        self.down = nn.Parameter(distribute_tensor(self.down.detach(), mesh, [Shard(0)]))

    def spread_parameters(self) -> list[nn.Parameter]:
        return [self.up, self.down]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        tokens = x.reshape(-1, WIDTH)
        weights, chosen = self.gate(tokens).softmax(-1).max(-1)
        order = chosen.argsort(stable=True)
        counts = chosen.bincount(minlength=EXPERTS)
        answers = self._travel(tokens[order], counts) if self.mesh else self._answer(tokens[order], counts[None])
        return (torch.zeros_like(tokens).index_copy(0, order, answers) * weights[:, None]).view_as(x)

    def _travel(self, tokens: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
        """Tokens ordered by expert go to the experts' ranks; their answers return in the same order."""
        assert self.mesh is not None
        ranks, group = self.mesh.size(), self.mesh.get_group()
        arriving = functional.all_to_all_single(counts, None, None, group).view(ranks, -1)
        give, get = counts.view(ranks, -1).sum(1).tolist(), arriving.sum(1).tolist()
        here = functional.all_to_all_single_autograd(tokens, get, give, group)
        return functional.all_to_all_single_autograd(self._answer(here, arriving), give, get, group)

    def _answer(self, tokens: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
        """counts: (sources, experts here), in which order the tokens are."""
        up, down = (p.to_local() if isinstance(p, DTensor) else p for p in (self.up, self.down))
        experts = torch.arange(counts.shape[1], device=counts.device).repeat(counts.shape[0])
        order = experts.repeat_interleave(counts.flatten()).argsort(stable=True)
        parts = tokens[order].split(counts.sum(0).tolist())
        answers = [F.silu(part @ up[e]) @ down[e] for e, part in enumerate(parts)]
        return torch.zeros_like(tokens).index_copy(0, order, torch.cat(answers))
