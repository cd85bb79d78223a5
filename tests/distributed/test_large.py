"""More elements than 32 bits count, in place: gigabytes of memory, in `make test-all`."""

from __future__ import annotations

import pytest
from launch import run_ranks

SCRIPT = """
import torch, torch.distributed as dist
import torch_neuronx
dist.init_process_group("neuron")
rank = dist.get_rank()
count = 2**31 + 17
x = torch.full((count,), rank + 1, dtype=torch.DTYPE, device="neuron")
edges = [0, 2**30, 2**31 - 5, 2**31, count - 5]
for edge in edges:
    x[edge : edge + 5] = torch.arange(5, device="neuron") + rank
dist.all_reduce(x)
for edge in edges:
    assert x[edge : edge + 5].tolist() == [2 * i + 1 for i in range(5)], (edge, x[edge : edge + 5])
for start in range(0, count, 2**28):
    part = x[start : start + 2**28]
    assert part.min().item() >= 1 and part.max().item() <= 9
assert x[12345].item() == 3
dist.broadcast(x.fill_(rank), src=1)
assert x[-1].item() == 1 and x[0].item() == 1 and x[2**31].item() == 1
"""


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("dtype", ["uint8", "bfloat16"])
def test_more_than_two_to_the_31_elements(dtype: str) -> None:
    run_ranks(SCRIPT.replace("DTYPE", dtype), 2, timeout=800).check()
