"""FSDP2: a shard of the model on every worker.

TORCH_NEURONX_ENABLE_HOST_CC=1 torchrun --standalone --nproc-per-node=2 examples/fsdp2.py
"""

import os

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import torch_neuronx  # Registers the Neuron device and distributed backend.

rank = int(os.environ["RANK"])
world_size = int(os.environ["WORLD_SIZE"])
dist.init_process_group(backend="neuron", init_method="env://", rank=rank, world_size=world_size)
try:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("neuron", (world_size,), mesh_dim_names=("dp",))
    torch.manual_seed(0)  # Start from identical parameters on all ranks.
    model = torch.nn.Sequential(
        torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.ReLU()),
        torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.ReLU()),
    ).to("neuron")
    for block in model:
        fully_shard(block, mesh=mesh, reshard_after_forward=True)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)

    model[0].set_modules_to_forward_prefetch([model[1]])
    model[1].set_modules_to_backward_prefetch([model[0]])

    inputs = torch.rand(256, 16, generator=torch.Generator().manual_seed(0))
    dataset = TensorDataset(inputs, inputs.flip(1))  # the same on every worker; each takes its share
    sampler = DistributedSampler(dataset)
    loader = DataLoader(dataset, batch_size=16, sampler=sampler)
    for epoch in range(5):
        sampler.set_epoch(epoch)
        for batch, target in loader:
            optimizer.zero_grad()
            loss = torch.nn.functional.mse_loss(model(batch.to("neuron")), target.to("neuron"))
            loss.backward()
            optimizer.step()
        dist.all_reduce(loss, op=dist.ReduceOp.AVG)
        if rank == 0:
            print(f"epoch={epoch} loss={loss.item():.4f}", flush=True)
finally:
    dist.destroy_process_group()
