"""Random programs over a few tensors: operators, views, in-place writes, streams joined by events. The same program
runs on any device; what it leaves behind must be the same, bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from hypothesis import strategies as st

STREAMS = 3

# Each takes tensors of the pool and a small integer, and gives a tensor or None. Whatever raises on the CPU must raise
# on the device, too.
Action = Callable[[list[torch.Tensor], int], torch.Tensor | None]

MAKING: dict[str, Action] = {
    "add": lambda t, n: t[0] + t[1],
    "sub_alpha": lambda t, n: torch.sub(t[0], t[1], alpha=n),
    "mul_int": lambda t, n: t[0] * n,
    "mul_float": lambda t, n: t[0] * (n / 4),
    "maximum": lambda t, n: torch.maximum(t[0], t[1]),
    "where": lambda t, n: torch.where(t[0] > t[1], t[0], t[1]),
    "compare": lambda t, n: t[0] < n,
    "addcmul": lambda t, n: torch.addcmul(t[0], t[1], t[2], value=n),
    "neg": lambda t, n: -t[0],
    "relu": lambda t, n: torch.relu(t[0]),
    "tanh": lambda t, n: torch.tanh(t[0]),
    "clamp": lambda t, n: t[0].clamp(-n, n),
    "sum": lambda t, n: t[0].sum(),
    "sum_dim": lambda t, n: t[0].sum(n % max(t[0].dim(), 1), keepdim=True),
    "cumsum": lambda t, n: t[0].cumsum(0),
    "softmax": lambda t, n: t[0].softmax(-1),
    "sort": lambda t, n: t[0].sort(-1, descending=bool(n % 2)).values,
    "argmax": lambda t, n: t[0].argmax(-1),
    "matmul": lambda t, n: t[0] @ t[1].mT,
    "cat": lambda t, n: torch.cat([t[0], t[1]], 0),
    "stack": lambda t, n: torch.stack([t[0], t[1]]),
    "flip": lambda t, n: t[0].flip(0),
    "clone": lambda t, n: t[0].clone(),
    "contiguous": lambda t, n: t[0].contiguous(),
    "index": lambda t, n: t[0][torch.tensor([0, -1], device=t[0].device)],
    "gather": lambda t, n: t[0].gather(-1, t[0].argsort(-1)),
    "masked": lambda t, n: t[0][t[0] > n],
    "to_double": lambda t, n: t[0].double(),
    "to_bfloat16": lambda t, n: t[0].bfloat16(),
    "to_int": lambda t, n: t[0].clamp(-9, 9).int(),
    "to_float": lambda t, n: t[0].float(),
    "full_like": lambda t, n: torch.full_like(t[0], n),
    "arange": lambda t, n: torch.arange(n, device=t[0].device, dtype=torch.float32),
    "through_host": lambda t, n: t[0].cpu().clone().to(t[0].device),
}
VIEWING: dict[str, Action] = {
    "transpose": lambda t, n: t[0].transpose(0, -1),
    "narrow": lambda t, n: t[0][n % 2 :],
    "step": lambda t, n: t[0][:: 1 + n % 3],
    "select": lambda t, n: t[0].select(0, n % 3),
    "unsqueeze": lambda t, n: t[0].unsqueeze(n % 2),
    "squeeze": lambda t, n: t[0].squeeze(),
    "reshape": lambda t, n: t[0].reshape(-1),
    "view": lambda t, n: t[0].view(-1),
    "expand": lambda t, n: t[0].expand(2, *t[0].shape),
    "diagonal": lambda t, n: t[0].diagonal(),
    "detach": lambda t, n: t[0].detach(),
    "unfold": lambda t, n: t[0].unfold(0, 2, 1),
}
WRITING: dict[str, Action] = {
    "add_": lambda t, n: t[0].add_(t[1], alpha=n),
    "mul_": lambda t, n: t[0].mul_(n),
    "copy_": lambda t, n: t[0].copy_(t[1]),
    "fill_": lambda t, n: t[0].fill_(n),
    "zero_": lambda t, n: t[0].zero_(),
    "lerp_": lambda t, n: t[0].lerp_(t[1], n / 8),
    "relu_": lambda t, n: t[0].relu_(),
    "masked_fill_": lambda t, n: t[0].masked_fill_(t[0] < n, n),
    "index_fill_": lambda t, n: t[0].index_fill_(0, torch.tensor([0], device=t[0].device), n),
    "index_add_": lambda t, n: t[0].index_add_(0, torch.tensor([0, 0], device=t[0].device), t[0][:2].clone()),
    "setitem": lambda t, n: t[0].__setitem__(slice(None, None, 2), n),
    "out": lambda t, n: torch.mul(t[1], n, out=t[0]),
    "foreach_": lambda t, n: torch._foreach_add_([t[0], t[1]], n),  # type: ignore[func-returns-value]
}
ACTIONS = {**MAKING, **VIEWING, **WRITING}


@dataclass(frozen=True)
class Step:
    """One action on three tensors of the pool, on a stream that has been joined to the last one's."""

    action: str
    tensors: tuple[int, int, int]
    number: int
    stream: int
    reads: bool  # the host looks at the result at once


STEPS = st.lists(
    st.builds(
        Step,
        action=st.sampled_from(sorted(ACTIONS)),
        tensors=st.tuples(*[st.integers(0, 15)] * 3),
        number=st.integers(0, 7),
        stream=st.integers(0, STREAMS - 1),
        reads=st.integers(0, 9).map(lambda x: x == 0),
    ),
    min_size=1,
    max_size=25,
)
SHAPES = st.lists(st.sampled_from([(4,), (4, 4), (1, 4), (3, 4), (2, 3, 4), (0, 4), ()]), min_size=2, max_size=4)


class Machine:
    """Runs programs on one device."""

    def __init__(self, device: str) -> None:
        self.device = device
        self.streams = [torch.neuron.Stream() for _ in range(STREAMS)] if device == "neuron" else []

    def run(
        self, shapes: list[tuple[int, ...]], steps: list[Step], raising: frozenset[int] = frozenset()
    ) -> tuple[list[torch.Tensor], list[Any]]:
        """All tensors of the pool, on the CPU; and of each step the error's type, what the host read, or None.

        `raising`: the steps after which the device is waited for, since an index out of bounds, say, is found by the
        kernel only.
        """
        generator = torch.Generator().manual_seed(0)
        pool = [torch.randn(shape, generator=generator).to(self.device) for shape in shapes]
        if self.streams:
            torch.neuron.synchronize()
        told: list[Any] = []
        last: torch.neuron.Stream | None = None
        for number, step in enumerate(steps):
            stream = self.streams[step.stream] if self.streams else None
            if stream is not None and last is not None and stream != last:
                stream.wait_event(last.record_event())
            last = stream
            if stream is None:
                told.append(self._step(step, pool))
            else:
                with torch.neuron.stream(stream):
                    told.append(self._step(step, pool, waits=number in raising))
        if last is not None:
            last.synchronize()
        return [tensor.cpu() for tensor in pool], told

    def _step(self, step: Step, pool: list[torch.Tensor], waits: bool = False) -> Any:
        chosen = [pool[index % len(pool)] for index in step.tensors]
        for tensor in chosen:
            if self.streams:
                tensor.record_stream(torch.neuron.current_stream())
        try:
            result = ACTIONS[step.action](chosen, step.number)
            if waits:
                torch.neuron.current_stream().synchronize()
        except Exception as error:  # noqa: BLE001  (compared with the other device's)
            return type(error).__name__
        if isinstance(result, torch.Tensor):
            if step.action not in WRITING and len(pool) < 16 and result.numel() <= 256:
                pool.append(result)
            if step.reads:
                return result.detach().cpu().tolist()
        return None
