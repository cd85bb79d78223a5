"""Lightning Fabric, told of the device: torchrun --standalone --nproc-per-node=2 examples/fabric_ddp.py

Fabric has no list of devices to be on, but takes an accelerator and a strategy of yours: the two classes.
"""

from __future__ import annotations

import os

import torch
from lightning_fabric import Fabric
from lightning_fabric.accelerators import Accelerator
from lightning_fabric.strategies import DDPStrategy
from torch.utils.data import DataLoader, TensorDataset


class NeuronAccelerator(Accelerator):
    def setup_device(self, device: torch.device) -> None:
        torch.neuron.set_device(device)

    def teardown(self) -> None:
        torch.neuron.empty_cache()

    @staticmethod
    def parse_devices(devices: int | str | list[int]) -> list[int]:
        return devices if isinstance(devices, list) else list(range(int(devices)))

    @staticmethod
    def get_parallel_devices(devices: list[int]) -> list[torch.device]:
        return [torch.device("neuron", index) for index in devices]

    @staticmethod
    def auto_device_count() -> int:
        return torch.neuron.device_count()

    @staticmethod
    def is_available() -> bool:
        return torch.neuron.is_available()

    @staticmethod
    def name() -> str:
        return "neuron"


class NeuronDDP(DDPStrategy):
    def _determine_ddp_device_ids(self) -> None:
        """Fabric would wrap the model on a stream of torch.cuda for anything but the CPU."""


fabric = Fabric(
    accelerator=NeuronAccelerator(),
    strategy=NeuronDDP(),
    devices=int(os.environ["LOCAL_WORLD_SIZE"]),
)
fabric.launch()
fabric.seed_everything(0, verbose=False)
model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.GELU(), torch.nn.Linear(32, 16))
model, optimizer = fabric.setup(model, torch.optim.AdamW(model.parameters(), lr=1e-2))
inputs = torch.randn(256, 16, generator=torch.Generator().manual_seed(0))
loader = fabric.setup_dataloaders(DataLoader(TensorDataset(inputs, inputs.flip(1)), batch_size=16))

for epoch in range(5):
    losses = []
    for batch, target in loader:
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(batch), target)
        fabric.backward(loss)
        fabric.clip_gradients(model, optimizer, max_norm=1.0)
        optimizer.step()
        losses.append(fabric.all_reduce(loss.detach(), reduce_op="mean"))
    mean = torch.stack(losses).mean().item()
    fabric.print(f"epoch={epoch} loss={mean:.6f} device={fabric.device.type}")
