"""torch's `fake` process group, which simulates one rank of many, with neuron tensors."""

from __future__ import annotations

import json

import pytest
from scripts import run_script

PROGRAM = """
import json
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import distribute_tensor, Shard
from torch.testing._internal.distributed.fake_pg import FakeStore

dist.init_process_group(BACKEND, store=FakeStore(), rank=1, world_size=4)
x = torch.ones(8, device="neuron")
dist.all_reduce(x)
gathered = torch.empty(32, device="neuron")
dist.all_gather_into_tensor(gathered, x)
mesh = init_device_mesh("neuron", (2, 2), mesh_dim_names=("dp", "tp"))
shard = distribute_tensor(torch.ones(8, 4), mesh["tp"], [Shard(0)]).to_local()
model = torch.nn.Linear(8, 8, device="neuron")
fully_shard(model, mesh=mesh["dp"])
model(x.expand(2, 8)).sum().backward()
weight = model.weight
print(json.dumps([str(x.device), list(shard.shape), list(weight.to_local().shape), str(weight.grad.to_local().device)]))
dist.destroy_process_group()
"""


@pytest.mark.parametrize("backend", ["fake", "neuron:fake", "cpu:fake,neuron:fake"])
def test_a_dry_run(backend: str) -> None:
    assert json.loads(run_script(f"BACKEND = {backend!r}\n" + PROGRAM)) == ["neuron:0", [4, 4], [4, 8], "neuron:0"]
