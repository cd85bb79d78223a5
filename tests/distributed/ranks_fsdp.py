"""Rank side of test_fsdp.py: FSDP2 trains on `neuron` as it does on CPU + gloo, feature by feature."""

from __future__ import annotations

import dataclasses
import functools

import torch
import torch.distributed as dist
from full_tensor import full
from sharded_training import (
    CLOSE,
    STEPS,
    WIDTH,
    Trained,
    assert_same_bits,
    assert_trained_alike,
    batch,
    blocks,
    fit,
    shard_blocks,
    train,
    world_mesh,
)
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import (
    CPUOffloadPolicy,
    FSDPModule,
    MixedPrecisionPolicy,
    OffloadPolicy,
    fully_shard,
    register_fsdp_forward_method,
)
from torch.distributed.tensor import DTensor, Shard

import torch_neuronx  # noqa: F401

BACKEND = "cpu:gloo,neuron:neuron"


@functools.cache
def plain(device: str) -> Trained:
    """The model sharded as in the guide; what the variants are compared with."""
    return train(device)


def meshes(world_size: int) -> list[tuple[int, ...]]:
    return [(world_size,), (world_size // 2, 2)]


def check_equals_gloo(rank: int, world_size: int) -> None:
    assert_trained_alike(plain("neuron"), plain("cpu"))
    assert plain("neuron").losses[-1] < 0.7 * plain("neuron").losses[0]


def check_equals_one_process(rank: int, world_size: int) -> None:
    """The batches of all ranks in one model that nobody shards."""
    model = blocks()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    losses = []
    for step in range(STEPS):
        optimizer.zero_grad()
        mine = batch(step, "cpu")
        parts = [torch.empty_like(mine) for _ in range(world_size)]
        dist.all_gather(parts, mine)
        inputs = torch.cat(parts)
        loss = (model(inputs) - inputs.flip(1)).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    whole = Trained(losses, [p.detach() for p in model.parameters()], model, optimizer)
    assert_trained_alike(plain("neuron"), whole)


def check_reshard_after_forward(rank: int, world_size: int) -> None:
    """When parameters are gathered again changes no bit."""
    for choice in (False, 2, None):
        shard = functools.partial(shard_blocks, reshard_after_forward=choice)
        assert_same_bits(train("neuron", shard), plain("neuron"))


def check_only_the_root(rank: int, world_size: int) -> None:
    def shard(model: nn.Module, mesh: DeviceMesh) -> None:
        fully_shard(model, mesh=mesh)

    assert_same_bits(train("neuron", shard), plain("neuron"))


def check_modules_in_one_group(rank: int, world_size: int) -> None:
    """A list of modules shares one all-gather."""

    def shard(model: nn.Module, mesh: DeviceMesh) -> None:
        fully_shard([model[0], model[1]], mesh=mesh)
        fully_shard(model, mesh=mesh)

    assert_same_bits(train("neuron", shard), plain("neuron"))


def check_explicit_prefetch(rank: int, world_size: int) -> None:
    def shard(model: nn.Module, mesh: DeviceMesh) -> None:
        shard_blocks(model, mesh)
        for index in range(len(model)):
            model[index].set_modules_to_forward_prefetch(list(model)[index + 1 : index + 3])
            model[index].set_modules_to_backward_prefetch(list(model)[max(index - 2, 0) : index][::-1])

    assert_same_bits(train("neuron", shard), plain("neuron"))


def check_hybrid(rank: int, world_size: int) -> None:
    """Replicas of a sharded model: reduce-scatter in the shard dimension, all-reduce in the other."""
    for shape in [(world_size // 2, 2), (world_size, 1)]:
        on_device = train("neuron", mesh_shape=shape)
        assert_trained_alike(on_device, plain("cpu"))
        assert_trained_alike(on_device, train("cpu", mesh_shape=shape))


def check_mixed_precision(rank: int, world_size: int) -> None:
    for reduce_dtype in (torch.float32, None):
        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=reduce_dtype, output_dtype=torch.float32)
        seen = set()

        def shard(
            model: nn.Module,
            mesh: DeviceMesh,
            policy: MixedPrecisionPolicy = policy,
            seen: set[torch.dtype] = seen,
        ) -> None:
            shard_blocks(model, mesh, mp_policy=policy)
            for block in model:
                block.register_forward_pre_hook(lambda block, args: seen.add(block.up.weight.dtype))

        on_device = train("neuron", shard)
        assert seen == {torch.bfloat16}
        assert {p.dtype for p in on_device.parameters} == {torch.float32}
        assert_trained_alike(on_device, train("cpu", shard), rtol=0.05, atol=0.02)
        assert_trained_alike(on_device, plain("neuron"), rtol=0.1, atol=0.05)


def check_cpu_offload(rank: int, world_size: int) -> None:
    """Field case 32: parameters wait in pinned memory; the weights are those without, bit by bit."""

    def offloaded(policy: OffloadPolicy | None) -> Trained:
        # With the policy the parameters stay on the CPU, where they were made.
        model = blocks() if policy else blocks().to("neuron")
        shard_blocks(model, world_mesh("neuron"), offload_policy=policy or OffloadPolicy())
        assert all(p.device.type == ("cpu" if policy else "neuron") for p in model.parameters())
        trained = fit(model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), "neuron")
        gathered = [full(value.to("neuron")) for value in model.state_dict().values()]
        return dataclasses.replace(trained, parameters=gathered)

    expected = offloaded(None)
    for pin_memory in (True, False):
        ours = offloaded(CPUOffloadPolicy(pin_memory=pin_memory))
        assert_same_bits(ours, expected)
        for value in ours.model.state_dict().values():
            assert value.device.type == "cpu" and value.to_local().is_pinned() == pin_memory


def check_shard_placement(rank: int, world_size: int) -> None:
    """Parameters split along another dimension than the first."""

    def last_dimension(parameter: nn.Parameter) -> Shard | None:
        return Shard(parameter.dim() - 1)

    def shard(model: nn.Module, mesh: DeviceMesh) -> None:
        shard_blocks(model, mesh, shard_placement_fn=last_dimension)
        assert model[0].up.weight.placements == (Shard(1),)

    assert_trained_alike(train("neuron", shard), plain("cpu"))


def check_uneven_parameters(rank: int, world_size: int) -> None:
    """Sizes that the ranks do not divide: shards of different length, the last ones empty."""
    results = []
    for device in ("neuron", "cpu"):
        trained = train(device, model=blocks(2, width=5, inner=3), width=5)
        chunks = torch.arange(5).chunk(world_size)  # 3 and 2 of two ranks; 2, 2, 1 and none of four
        rows = len(chunks[rank]) if rank < len(chunks) else 0
        assert {p.to_local().shape[0] for p in trained.model.parameters() if p.shape[0] == 5} == {rows}
        results.append(trained)
    assert_trained_alike(*results)


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embedding = nn.Embedding(33, WIDTH)
        self.block = blocks(1)[0]
        self.head = nn.Linear(WIDTH, 33, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.block(self.embedding(tokens)))


def check_tied_parameters(rank: int, world_size: int) -> None:
    results = []
    for device in ("neuron", "cpu"):
        model = Tied().to(device)
        for module in (model.block, model):
            fully_shard(module, mesh=world_mesh(device))
        assert model.head.weight is model.embedding.weight
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        losses = []
        for step in range(STEPS):
            tokens = torch.randint(33, (4, 6), generator=torch.Generator().manual_seed(rank + 10 * step)).to(device)
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten())
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        results.append(Trained(losses, [full(p) for p in model.parameters()], model, optimizer))
    assert len(results[0].parameters) == len(list(Tied().parameters()))
    assert_trained_alike(*results)


def check_gradient_accumulation(rank: int, world_size: int) -> None:
    """Without communication, without resharding, and with all-reduce alone left out: the same gradient."""

    def gradients(device: str, shape: tuple[int, ...], how: str) -> list[torch.Tensor]:
        model = blocks().to(device)
        shard_blocks(model, world_mesh(device, shape))
        for step in range(3):
            last = step == 2
            if how == "no sync":
                model.set_requires_gradient_sync(last)
            elif how == "no all-reduce":
                model.set_requires_all_reduce(last)
            elif how == "unsharded":
                model.set_reshard_after_backward(last)
                model.set_is_last_backward(last)
            model(batch(step, device)).square().mean().backward()
        return [full(p.grad) for p in model.parameters()]

    for shape in meshes(world_size):
        expected = gradients("cpu", shape, "each")
        hows = ["each", "no sync", "unsharded"] + (["no all-reduce"] if len(shape) == 2 else [])
        for how in hows:
            torch.testing.assert_close(gradients("neuron", shape, how), expected, rtol=1e-4, atol=1e-6)


def check_divide_factor(rank: int, world_size: int) -> None:
    """Field case 35: a factor divides once, whatever the mesh."""

    def gradients(device: str, shape: tuple[int, ...], factor: float) -> list[torch.Tensor]:
        model = blocks().to(device)
        shard_blocks(model, world_mesh(device, shape))
        for module in [*model, model]:
            module.set_gradient_divide_factor(factor)
        model(batch(0, device)).square().mean().backward()
        return [full(p.grad) for p in model.parameters()]

    default = gradients("cpu", (world_size,), float(world_size))
    for shape in meshes(world_size):
        for factor in (300.0, 1.0):
            expected = [gradient * (world_size / factor) for gradient in default]
            torch.testing.assert_close(gradients("neuron", shape, factor), expected, rtol=1e-4, atol=1e-6)


def check_clip_grad_norm(rank: int, world_size: int) -> None:
    """The norm is that of the whole gradient, not of the shard."""
    results = []
    for device in ("neuron", "cpu"):
        norms: list[torch.Tensor] = []

        def clip(model: nn.Module, norms: list[torch.Tensor] = norms) -> None:
            norms.append(full(nn.utils.clip_grad_norm_(model.parameters(), 0.05)))

        trained = train(device, after_backward=clip)
        norm = torch.stack([full(p.grad).norm() for p in trained.model.parameters()]).norm()
        torch.testing.assert_close(norm, torch.tensor(0.05), rtol=1e-3, atol=0)
        results.append((trained, norms))
    assert_trained_alike(results[0][0], results[1][0])
    torch.testing.assert_close(results[0][1], results[1][1], **CLOSE)


def check_meta_device(rank: int, world_size: int) -> None:
    """Sharded before there is any memory; then filled from the device's generator, which all ranks share."""
    with torch.device("meta"):
        model = blocks()
    shard_blocks(model, world_mesh("neuron"))
    model.to_empty(device="neuron")
    torch.manual_seed(3)
    for module in model.modules():
        if hasattr(module, "reset_parameters"):
            module.reset_parameters()
    whole = [full(p) for p in model.parameters()]
    for tensor in whole:
        reference = tensor.clone()
        dist.broadcast(reference, src=0)
        assert torch.equal(tensor, reference)
    weight = full(model[0].up.weight)
    bound = WIDTH**-0.5
    assert weight.abs().max() <= bound and abs(weight.std() - bound / 3**0.5) < 0.02
    # No two rows alike: shards do not repeat each other's numbers.
    assert len(weight.unique(dim=0)) == len(weight)
    before = model(batch(0, "neuron")).square().mean()
    before.backward()
    assert all(p.grad is not None for p in model.parameters())


def check_frozen_and_ignored(rank: int, world_size: int) -> None:
    results = []
    for device in ("neuron", "cpu"):
        model = blocks().to(device)
        model[0].requires_grad_(False)
        kept_whole = {model[1].norm.weight}
        for block in model:
            fully_shard(block, mesh=world_mesh(device), ignored_params=kept_whole)
        fully_shard(model, mesh=world_mesh(device), ignored_params=kept_whole)
        assert not isinstance(model[1].norm.weight, DTensor)
        # One by one: torch refuses lists that mix whole and sharded tensors.
        trained = [p for p in model.parameters() if p.requires_grad]
        optimizer = torch.optim.AdamW(trained, lr=1e-2, foreach=False)

        def average(model: nn.Module) -> None:
            gradient = model[1].norm.weight.grad  # FSDP leaves it alone
            dist.all_reduce(gradient)
            gradient.div_(world_size)

        results.append(fit(model, optimizer, device, after_backward=average))
    assert torch.equal(results[0].parameters[0], next(p.detach() for p in blocks().parameters()))
    assert_trained_alike(*results)


def check_activation_checkpointing(rank: int, world_size: int) -> None:
    from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper

    def shard(model: nn.Module, mesh: DeviceMesh) -> None:
        for index, block in enumerate(model):
            model[index] = checkpoint_wrapper(block)
        shard_blocks(model, mesh)

    assert_same_bits(train("neuron", shard), plain("neuron"))


def check_explicit_unshard(rank: int, world_size: int) -> None:
    """unshard() by hand, waited for or not, and another method than forward."""
    model = blocks().to("neuron")
    expected = [p.detach().cpu() for p in model.parameters()]
    shard_blocks(model, world_mesh("neuron"))
    for block in model:
        assert isinstance(block, FSDPModule)
        block.unshard()
    for p, whole in zip(model.parameters(), expected, strict=True):
        assert not isinstance(p, DTensor) and torch.equal(p.detach().cpu(), whole)
    for block in model:
        block.reshard()
    assert all(isinstance(p, DTensor) for p in model.parameters())
    handles = [block.unshard(async_op=True) for block in model]
    for handle in handles:
        handle.wait()
    out = model(batch(0, "neuron"))

    class WithMethod(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(WIDTH, WIDTH)

        def encode(self, x: torch.Tensor) -> torch.Tensor:
            return self.linear(x)

    torch.manual_seed(0)
    other = WithMethod().to("neuron")
    wanted = other.encode(out.detach()).cpu()
    fully_shard(other, mesh=world_mesh("neuron"))
    register_fsdp_forward_method(other, "encode")
    torch.testing.assert_close(other.encode(out.detach()).cpu(), wanted)


def check_optimizer_in_backward(rank: int, world_size: int) -> None:
    """A hook steps each parameter as soon as its gradient is there, and lets it go."""
    model = blocks().to("neuron")
    shard_blocks(model, world_mesh("neuron"))
    optimizers = {p: torch.optim.AdamW([p], lr=1e-2) for p in model.parameters()}

    def step(parameter: nn.Parameter) -> None:
        optimizers[parameter].step()
        optimizers[parameter].zero_grad()

    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(step)
    for number in range(STEPS):
        inputs = batch(number, "neuron")
        (model(inputs) - inputs.flip(1)).square().mean().backward()
    for mine, other in zip(model.parameters(), plain("neuron").parameters, strict=True):
        assert torch.equal(full(mine), other)


def check_grad_scaler(rank: int, world_size: int) -> None:
    """An inf in one rank's shard makes all of them skip the step."""
    model = blocks().to("neuron")
    shard_blocks(model, world_mesh("neuron"))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("neuron", init_scale=8.0)
    before = [full(p) for p in model.parameters()]
    for poison in (True, False):
        optimizer.zero_grad()
        loss = model(batch(0, "neuron")).square().mean()
        scaler.scale(loss * (float("inf") if poison and rank == 0 else 1.0)).backward()
        scaler.step(optimizer)
        scaler.update()
        now = [full(p) for p in model.parameters()]
        assert all(torch.equal(a, b) for a, b in zip(before, now, strict=True)) == poison
        assert scaler.get_scale() == 4.0


def check_many_small_blocks(rank: int, world_size: int) -> None:
    """Field case 34: memory that one stream frees is not another's to write to while it still reads."""
    deep = functools.partial(blocks, 8, WIDTH, 2 * WIDTH)

    def poison(*_: object) -> None:
        # Takes what was just freed, whatever its size, and writes to it.
        for power in range(8, 13):
            torch.full((1 << power,), float("nan"), device="neuron")

    def shard(model: nn.Module, mesh: DeviceMesh) -> None:
        shard_blocks(model, mesh)
        for index in range(len(model) - 2):
            model[index].set_modules_to_forward_prefetch([model[index + 1], model[index + 2]])
        for block in model:
            block.register_forward_hook(poison)
            block.up.weight.register_post_accumulate_grad_hook(poison)

    ours = train("neuron", shard, model=deep(), steps=20)
    assert_trained_alike(ours, train("cpu", model=deep(), steps=20), rtol=1e-3, atol=1e-4)
    held = torch.neuron.memory_reserved()
    train("neuron", shard, model=deep(), steps=20)
    assert torch.neuron.memory_reserved() <= 2 * held


def check_fsdp1(rank: int, world_size: int) -> None:
    from sharded_training import Block
    from torch.distributed.fsdp import FullyShardedDataParallel, ShardingStrategy
    from torch.distributed.fsdp.wrap import ModuleWrapPolicy

    def run(device: str, strategy: ShardingStrategy) -> Trained:
        model = FullyShardedDataParallel(
            blocks().to(device),
            device_id=torch.device(device, rank) if device == "neuron" else torch.device("cpu"),
            auto_wrap_policy=ModuleWrapPolicy({Block}),
            sharding_strategy=strategy,
            use_orig_params=True,
        )
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        trained = fit(model, optimizer, device, after_backward=lambda model: model.clip_grad_norm_(100.0))
        with FullyShardedDataParallel.summon_full_params(model):
            return dataclasses.replace(trained, parameters=[p.detach().cpu().clone() for p in model.parameters()])

    for strategy in (ShardingStrategy.FULL_SHARD, ShardingStrategy.SHARD_GRAD_OP, ShardingStrategy.NO_SHARD):
        assert_trained_alike(run("neuron", strategy), plain("cpu"))
