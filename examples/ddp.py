"""DDP: a replica of the model on every worker. torchrun --standalone --nproc-per-node=2 examples/ddp.py"""

import os

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import torch_neuronx  # Registers the Neuron device and distributed backend.

rank = int(os.environ["RANK"])
world_size = int(os.environ["WORLD_SIZE"])
dist.init_process_group(backend="neuron", init_method="env://", rank=rank, world_size=world_size)
try:
    from torch.nn.parallel import DistributedDataParallel as DDP

    model = torch.nn.Linear(16, 16).to("neuron")
    model = DDP(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    inputs = torch.randn(256, 16, generator=torch.Generator().manual_seed(0))
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
