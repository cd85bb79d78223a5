import os

import torch
import torch.distributed as dist
import torch_neuronx  # Registers the Neuron device and distributed backend.

rank = int(os.environ["RANK"])
world_size = int(os.environ["WORLD_SIZE"])
dist.init_process_group(
    backend="neuron",
    init_method="env://",
    rank=rank,
    world_size=world_size,
)
try:
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B

    assert world_size == 2
    if rank == 0:
        stage_model = torch.nn.Sequential(
            torch.nn.Linear(16, 16), torch.nn.ReLU(),
        ).to("neuron")
    else:
        stage_model = torch.nn.Linear(16, 16).to("neuron")

    stage_device = next(stage_model.parameters()).device
    example_input = torch.empty(
        2, 16, device=stage_device, requires_grad=(rank > 0),
    )
    example_output = torch.empty(2, 16, device=stage_device, requires_grad=True)
    stage = PipelineStage(
        stage_model, stage_index=rank, num_stages=2, device=stage_device,
        input_args=example_input, output_args=example_output, group=dist.group.WORLD,
    )
    schedule = Schedule1F1B(stage, n_microbatches=4, loss_fn=torch.nn.MSELoss())
    optimizer = torch.optim.SGD(stage_model.parameters(), lr=0.01)
    optimizer.zero_grad()
    if rank == 0:
        schedule.step(torch.randn(8, 16, device=stage_device))
    else:
        schedule.step(target=torch.randn(8, 16, device=stage_device))
    optimizer.step()

    norm = sum(p.grad.square().sum() for p in stage_model.parameters()).sqrt()
    print(f"rank={rank}: stage={rank} gradient_norm={norm.item():.4f}", flush=True)
finally:
    dist.destroy_process_group()
