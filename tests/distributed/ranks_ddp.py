"""Rank side of test_ddp.py: each check trains on `neuron` and on CPU + gloo in the same processes, and compares."""

import copy
from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import torch_neuronx  # noqa: F401

BACKEND = "cpu:gloo,neuron:neuron"


def small_model(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(16, 64), nn.GELU(), nn.LayerNorm(64), nn.Linear(64, 16))


def dataset() -> TensorDataset:
    inputs = torch.randn(96, 16, generator=torch.Generator().manual_seed(1))
    return TensorDataset(inputs, inputs.flip(1))


def train(
    device: str,
    epochs: int = 2,
    read_every_step: bool = True,
    prepare: Callable[[DDP], None] | None = None,
    model: nn.Module | None = None,
    **options: object,
) -> tuple[list[float], list[torch.Tensor]]:
    ddp = DDP((model or small_model()).to(device), **options)
    if prepare is not None:
        prepare(ddp)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.05, momentum=0.9)
    sampler = DistributedSampler(dataset())
    loader = DataLoader(dataset(), batch_size=8, sampler=sampler)
    losses = []
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        for batch, target in loader:
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(ddp(batch.to(device)), target.to(device))
            loss.backward()
            optimizer.step()
            losses.append(loss.item() if read_every_step else loss.detach())
    return [float(loss) for loss in losses], [p.detach().cpu() for p in ddp.parameters()]


def assert_trained_alike(first: tuple, second: tuple, **tolerance: float) -> None:
    torch.testing.assert_close(first[0], second[0], **(tolerance or {"rtol": 1e-4, "atol": 1e-5}))
    torch.testing.assert_close(first[1], second[1], **(tolerance or {"rtol": 1e-4, "atol": 1e-5}))


def assert_equal_everywhere(tensors: list[torch.Tensor]) -> None:
    flat = torch.cat([t.flatten().float() for t in tensors])
    reference = flat.clone()
    dist.broadcast(reference, src=0)
    assert torch.equal(flat, reference), "ranks differ"


def check_equals_gloo(rank: int, world_size: int) -> None:
    on_device = train("neuron")
    assert_trained_alike(on_device, train("cpu"))
    assert_equal_everywhere(on_device[1])
    assert on_device[0][-1] < on_device[0][0]


def check_reading_the_loss_changes_nothing(rank: int, world_size: int) -> None:
    """Field case 55; and two runs with one seed give the same bits."""
    every, never = train("neuron"), train("neuron", read_every_step=False)
    assert every[0] == never[0]
    assert all(torch.equal(a, b) for a, b in zip(every[1], never[1], strict=True))


def check_without_index_means_the_own_core(rank: int, world_size: int) -> None:
    """Field case 55, second part."""
    expected = torch.device("neuron", rank)
    assert torch.neuron.current_device() == rank
    assert torch.empty(1, device="neuron").device == expected
    assert nn.Linear(2, 2, device="neuron").weight.device == expected
    assert torch.neuron.Stream().device == expected and torch.neuron.current_stream().device == expected
    with torch.neuron.stream(torch.neuron.Stream()):
        assert (torch.ones(2, device="neuron") * 2).device == expected
    try:
        torch.empty(1, device=f"neuron:{(rank + 1) % world_size}")
    except (RuntimeError, ValueError) as error:
        assert "more than one device per process" in str(error), error
    else:
        raise AssertionError("another rank's device was allowed")


def check_gradient_accumulation(rank: int, world_size: int) -> None:
    results = []
    for device in ("neuron", "cpu"):
        ddp = DDP(small_model().to(device))
        data = torch.randn(3, 8, 16, generator=torch.Generator().manual_seed(rank)).to(device)
        with ddp.no_sync():
            for step in range(2):
                ddp(data[step]).square().mean().backward()
        ddp(data[2]).square().mean().backward()
        results.append([p.grad.cpu() for p in ddp.parameters()])
    torch.testing.assert_close(results[0], results[1], rtol=1e-4, atol=1e-6)


def check_comm_hook(rank: int, world_size: int) -> None:
    """The hook returns a Future of the reduced bucket, and divides by itself."""

    def hook(state: object, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        work = dist.all_reduce(bucket.buffer(), async_op=True)
        return work.get_future().then(lambda done: done.value()[0] / dist.get_world_size())

    hooked = train("neuron", prepare=lambda ddp: ddp.register_comm_hook(None, hook))
    assert_trained_alike(hooked, train("neuron"), rtol=1e-6, atol=1e-7)


def check_compress_hook(rank: int, world_size: int) -> None:
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

    hooked = train("neuron", prepare=lambda ddp: ddp.register_comm_hook(None, default_hooks.fp16_compress_hook))
    assert_trained_alike(hooked, train("cpu"), rtol=0.1, atol=0.02)
    assert_equal_everywhere(hooked[1])


def check_quantization_hooks(rank: int, world_size: int) -> None:
    """They gather scales and quantized gradients, and take them from the Futures by rank."""
    from torch.distributed.algorithms.ddp_comm_hooks import quantization_hooks as hooks

    for hook in (hooks.quantization_pertensor_hook, hooks.quantization_perchannel_hook):
        hooked = train("neuron", prepare=lambda ddp, hook=hook: ddp.register_comm_hook(dist.group.WORLD, hook))
        assert_trained_alike(hooked, train("cpu"), rtol=0.1, atol=0.02)
        assert_equal_everywhere(hooked[1])


def check_unused_parameters(rank: int, world_size: int) -> None:
    """Field case 27: the branch depends on the rank, two steps of three are not synchronized."""

    class Branches(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.trunk, self.left, self.right = nn.Linear(16, 16), nn.Linear(16, 16), nn.Linear(16, 16)

        def forward(self, x: torch.Tensor, left: bool) -> torch.Tensor:
            return (self.left if left else self.right)(self.trunk(x))

    results = []
    for device in ("neuron", "cpu"):
        torch.manual_seed(0)
        ddp = DDP(Branches().to(device), find_unused_parameters=True)
        data = torch.randn(3, 4, 16, generator=torch.Generator().manual_seed(rank)).to(device)
        with ddp.no_sync():
            for step in range(2):
                ddp(data[step], left=rank == 0).square().mean().backward()
        ddp(data[2], left=True).square().mean().backward()
        results.append([torch.zeros_like(p).cpu() if p.grad is None else p.grad.cpu() for p in ddp.parameters()])
    torch.testing.assert_close(results[0], results[1], rtol=1e-4, atol=1e-6)
    assert_equal_everywhere(results[0])


def check_static_graph_with_an_unused_output(rank: int, world_size: int) -> None:
    """Field case 27: an output that the loss never uses; all parameters have gradients, or torch refuses."""

    class TwoOutputs(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.trunk, self.head = nn.Linear(16, 16), nn.Linear(16, 16)

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            hidden = self.trunk(x)
            return self.head(hidden), hidden.square()

    results = []
    for device in ("neuron", "cpu"):
        torch.manual_seed(0)
        ddp = DDP(TwoOutputs().to(device), static_graph=True)
        optimizer = torch.optim.SGD(ddp.parameters(), lr=0.05)
        data = torch.randn(4, 8, 16, generator=torch.Generator().manual_seed(rank)).to(device)
        losses = []
        for inputs in data:
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(ddp(inputs)[0], inputs.flip(1))
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        results.append((losses, [p.detach().cpu() for p in ddp.parameters()]))
    assert_trained_alike(*results)
    assert_equal_everywhere(results[0][1])


def check_static_graph_and_bucket_cap(rank: int, world_size: int) -> None:
    plain = train("neuron")
    assert_trained_alike(train("neuron", static_graph=True), plain, rtol=1e-5, atol=1e-6)
    assert_trained_alike(train("neuron", bucket_cap_mb=0.001), plain, rtol=1e-5, atol=1e-6)
    assert_trained_alike(train("neuron", gradient_as_bucket_view=True), plain, rtol=1e-5, atol=1e-6)


def check_init_sync_off(rank: int, world_size: int) -> None:
    assert_trained_alike(train("neuron", init_sync=False), train("neuron"), rtol=1e-6, atol=1e-7)


def check_broadcast_of_buffers_and_parameters(rank: int, world_size: int) -> None:
    model = nn.Sequential(small_model(seed=rank), nn.BatchNorm1d(16)).to("neuron")
    ddp = DDP(model)
    ddp(torch.randn(8, 16, device="neuron") + rank)
    ddp(torch.randn(8, 16, device="neuron") + rank)
    assert_equal_everywhere([p.detach().cpu() for p in ddp.parameters()])


def check_autocast_and_grad_scaler(rank: int, world_size: int) -> None:
    """Field case 52: an inf on one rank makes all of them skip the step and halve the scale."""
    ddp = DDP(small_model().to("neuron"))
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("neuron", init_scale=1024.0)
    data = torch.randn(8, 16, generator=torch.Generator().manual_seed(rank)).to("neuron")
    before = [p.detach().cpu() for p in ddp.parameters()]
    for poison in (True, False):
        optimizer.zero_grad()
        with torch.autocast("neuron", dtype=torch.bfloat16):
            hidden = ddp.module[0](data)
            assert hidden.dtype == torch.bfloat16 and hidden.softmax(-1).dtype == torch.float32
            loss = ddp(data).float().square().mean()
        if poison and rank == world_size - 1:
            loss = loss * float("inf")
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        now = [p.detach().cpu() for p in ddp.parameters()]
        assert all(torch.equal(a, b) for a, b in zip(before, now, strict=True)) == poison
        assert scaler.get_scale() == 512.0
        assert_equal_everywhere(now)


def check_save_and_load_between_ranks(rank: int, world_size: int) -> None:
    """Field case 50: what the last rank saves, the others load; deepcopy keeps tied weights."""
    import os
    import tempfile
    from pathlib import Path

    folder = [tempfile.mkdtemp() if rank == 0 else ""]
    dist.broadcast_object_list(folder, src=0)
    file = Path(folder[0]) / "state.pt"
    values = torch.arange(6.0).reshape(2, 3)
    if rank == world_size - 1:
        tensor = values.to("neuron")
        torch.save({"t": tensor, "view": tensor[0]}, file)
    dist.barrier()
    for where in ("cpu", "neuron", f"neuron:{rank}", {f"neuron:{world_size - 1}": f"neuron:{rank}"}, lambda s, _: s):
        loaded = torch.load(file, map_location=where)
        assert torch.equal(loaded["t"].cpu(), values)
        if isinstance(where, str):
            assert loaded["t"].device.type == where.split(":")[0]
        loaded["view"].fill_(9)
        assert loaded["t"][0].tolist() == [9.0] * 3
    module = nn.Module()
    module.a = nn.Linear(3, 3, device="neuron")
    module.b = module.a
    copied = copy.deepcopy(module)
    assert copied.a.weight is copied.b.weight and torch.equal(copied.a.weight.cpu(), module.a.weight.cpu())
    dist.barrier()
    if rank == 0:
        file.unlink()
        os.rmdir(folder[0])  # noqa: PTH106


def check_out_of_memory_on_one_rank(rank: int, world_size: int) -> None:
    """Field case 51: the error is catchable, the device stays usable, and the others are not held up."""
    if rank == world_size - 1:
        try:
            torch.empty(1 << 60, dtype=torch.uint8, device="neuron")
        except torch.OutOfMemoryError as error:
            assert "limit" in str(error).lower() or "total" in str(error).lower(), error
        else:
            raise AssertionError("an exbibyte was allocated")
    tensor = torch.ones(1000, device="neuron")
    dist.all_reduce(tensor)
    assert tensor.sum().item() == 1000 * world_size


def check_sync_batch_norm(rank: int, world_size: int) -> None:
    """Field case 28: as one BatchNorm over all ranks' rows, which differ in number."""
    for shape, layout in (
        ((3,), torch.contiguous_format),
        ((3, 5, 4), torch.channels_last),
        ((3, 2, 3, 4), torch.channels_last_3d),
    ):
        generator = torch.Generator().manual_seed(7)
        parts = [torch.randn(2 + r, *shape, generator=generator) * 3 + 1 for r in range(world_size)]
        gradients = [torch.randn(part.shape, generator=generator) for part in parts]
        kind = {1: nn.BatchNorm1d, 3: nn.BatchNorm2d, 4: nn.BatchNorm3d}[len(shape)]
        whole = kind(3)
        nn.init.normal_(whole.weight), nn.init.normal_(whole.bias)
        for parameter in whole.parameters():
            dist.broadcast(parameter.data, 0)
        mine = nn.SyncBatchNorm.convert_sync_batchnorm(copy.deepcopy(whole)).to("neuron")
        everything = torch.cat(parts).requires_grad_()
        expected = whole(everything)
        expected.backward(torch.cat(gradients))
        x = parts[rank].to("neuron").contiguous(memory_format=layout).requires_grad_()
        y = mine(x)
        assert y.is_contiguous(memory_format=layout)
        y.backward(gradients[rank].to("neuron"))
        rows = slice(sum(len(part) for part in parts[:rank]), sum(len(part) for part in parts[: rank + 1]))
        torch.testing.assert_close(y.cpu(), expected[rows])
        torch.testing.assert_close(x.grad.cpu(), everything.grad[rows])
        for name, buffer in whole.named_buffers():
            torch.testing.assert_close(mine.get_buffer(name).cpu(), buffer)
        for name, parameter in whole.named_parameters():
            gradient = mine.get_parameter(name).grad
            dist.all_reduce(gradient)
            torch.testing.assert_close(gradient.cpu(), parameter.grad, rtol=1e-4, atol=1e-4)
