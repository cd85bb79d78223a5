"""Layers split over the workers. torchrun --standalone --nproc-per-node=2 examples/tensor_parallel.py"""

import os

import torch
import torch.distributed as dist

import torch_neuronx  # Registers the Neuron device and distributed backend.

rank = int(os.environ["RANK"])
world_size = int(os.environ["WORLD_SIZE"])
dist.init_process_group(backend="neuron", init_method="env://", rank=rank, world_size=world_size)
torch.manual_seed(0)  # Every worker starts from the same layers, and keeps its part.
try:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import (
        ColwiseParallel, RowwiseParallel, parallelize_module,
    )

    tp_mesh = init_device_mesh("neuron", (world_size,), mesh_dim_names=("tp",))
    model = torch.nn.Sequential(
        torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 16),
    ).to("neuron")
    model = parallelize_module(
        model, tp_mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()},
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    inputs = torch.randn(64, 16).to("neuron")  # The same on every worker: each has a part of the layers.
    for step in range(5):
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(inputs), inputs.flip(1))
        loss.backward()
        optimizer.step()
        if rank == 0:  # The loss is the same on every worker.
            print(f"step={step} loss={loss.item():.4f}", flush=True)
    if rank == 0:
        weight = model[0].weight
        print(f"weight={tuple(weight.shape)} here={tuple(weight.to_local().shape)}", flush=True)
finally:
    dist.destroy_process_group()
