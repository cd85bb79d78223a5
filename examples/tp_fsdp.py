"""Two dimensions: layers split inside each group, each part sharded across the groups.

torchrun --standalone --nproc-per-node=4 examples/tp_fsdp.py
"""

import os

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

import torch_neuronx  # Registers the Neuron device and distributed backend.

rank = int(os.environ["RANK"])
world_size = int(os.environ["WORLD_SIZE"])
dist.init_process_group(backend="neuron", init_method="env://", rank=rank, world_size=world_size)
try:
    mesh = init_device_mesh("neuron", (world_size // 2, 2), mesh_dim_names=("dp", "tp"))
    torch.manual_seed(0)  # Start from identical parameters on all ranks.
    model = torch.nn.Sequential(
        *(torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 16)) for _ in range(2))
    ).to("neuron")
    # Tensor parallelism first, then FSDP over what is left of each parameter.
    for block in model:
        parallelize_module(block, mesh["tp"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
        fully_shard(block, mesh=mesh["dp"])
    fully_shard(model, mesh=mesh["dp"])
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)

    # A batch for each "dp" coordinate; the workers of one "tp" group see the same.
    generator = torch.Generator().manual_seed(1 + mesh["dp"].get_local_rank())
    inputs = torch.randn(32, 16, generator=generator).to("neuron")
    for step in range(5):
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(inputs), inputs.flip(1))
        loss.backward()
        optimizer.step()
        dist.all_reduce(loss, op=dist.ReduceOp.AVG)
        if rank == 0:
            print(f"step={step} loss={loss.item():.4f}", flush=True)
    if rank == 0:
        weight = model[0][0].weight
        print(f"weight={tuple(weight.shape)} here={tuple(weight.to_local().shape)}", flush=True)
finally:
    dist.destroy_process_group()
