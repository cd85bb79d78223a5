"""Hugging Face Accelerate: it knows the device. torchrun --standalone --nproc-per-node=2 examples/accelerate_ddp.py"""

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch.utils.data import DataLoader, TensorDataset

accelerator = Accelerator()
set_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.GELU(), torch.nn.Linear(32, 16))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
inputs = torch.randn(256, 16, generator=torch.Generator().manual_seed(0))
loader = DataLoader(TensorDataset(inputs, inputs.flip(1)), batch_size=16)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)

for epoch in range(5):
    losses = []
    for batch, target in loader:
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(batch), target)
        accelerator.backward(loss)
        accelerator.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(accelerator.gather(loss.detach()).mean())
    mean = torch.stack(losses).mean().item()
    accelerator.print(f"epoch={epoch} loss={mean:.6f} device={accelerator.device.type}")
accelerator.end_training()
