"""One device, no launcher, no import of ours: torch finds the device by itself."""

import torch

a = torch.randn(512, 512, device="neuron")
b = (a @ a.T).softmax(dim=-1)
print(b.sum().item(), b.device, torch.neuron.memory_allocated(), "bytes")
