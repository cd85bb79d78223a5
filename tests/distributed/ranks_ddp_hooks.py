"""Rank side of test_ddp_hooks.py: what reduces DDP's gradients in another way, and what steps with them."""

import functools

import torch
import torch.distributed as dist
from ranks_ddp import assert_equal_everywhere, assert_trained_alike, small_model, train
from reference import fails_with
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, post_localSGD_hook, powerSGD_hook
from torch.distributed.algorithms.ddp_comm_hooks.ddp_zero_hook import hook_with_zero_step
from torch.distributed.algorithms.join import Join
from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.optim import PostLocalSGDOptimizer, ZeroRedundancyOptimizer, _apply_optimizer_in_backward
from torch.nn.parallel import DistributedDataParallel as DDP

import torch_neuronx  # noqa: F401
from neuron_emu import _C

BACKEND = "cpu:gloo,neuron:neuron"
STEPS = 10


@functools.cache
def on_gloo() -> tuple:
    return train("cpu")


def data(rank: int, device: str, steps: int = STEPS) -> torch.Tensor:
    return torch.randn(steps, 8, 16, generator=torch.Generator().manual_seed(rank)).to(device)


def fit(ddp: nn.Module, optimizer: torch.optim.Optimizer, batches: torch.Tensor) -> tuple[list, list]:
    losses = []
    for inputs in batches:
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(ddp(inputs), inputs.flip(1))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, [p.detach().cpu() for p in ddp.parameters()]


def check_hooks_of_half_width(rank: int, world_size: int) -> None:
    """Each with the gradients of gloo as far as their type goes."""

    def bf16(state: object, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        return default_hooks.bf16_compress_hook(state, bucket)

    # By its name, wherever there is no CUDA or XPU (docs/trainers.md).
    ddp = DDP(nn.Linear(2, 2, device="neuron"))
    refused = functools.partial(ddp.register_comm_hook, None, default_hooks.bf16_compress_hook)
    fails_with(TypeError, "BF16 all reduce communication hook required", refused)

    exact = train("neuron", prepare=lambda ddp: ddp.register_comm_hook(dist.group.WORLD, default_hooks.allreduce_hook))
    assert_trained_alike(exact, on_gloo())
    wrapped = default_hooks.fp16_compress_wrapper(default_hooks.allreduce_hook)
    for hook in (default_hooks.fp16_compress_hook, wrapped, bf16):
        hooked = train("neuron", prepare=lambda ddp, hook=hook: ddp.register_comm_hook(dist.group.WORLD, hook))
        assert_equal_everywhere(hooked[1])
        assert_trained_alike(hooked, on_gloo(), rtol=0.1, atol=0.02)


def check_power_sgd(rank: int, world_size: int) -> None:
    """Low-rank gradients, the rest added to the next ones: as on gloo, since it draws its numbers on the CPU.

    Its batched form fails in torch 2.13 on every device: it gives a matrix to a function that wants a stack of them.
    """
    for options in ({"matrix_approximation_rank": 2}, {"matrix_approximation_rank": 3, "warm_start": False}):
        results = []
        for device in ("neuron", "cpu"):
            state = powerSGD_hook.PowerSGDState(None, start_powerSGD_iter=2, min_compression_rate=1, **options)
            hook = powerSGD_hook.powerSGD_hook
            prepare = functools.partial(DDP.register_comm_hook, state=state, hook=hook)
            results.append(train(device, prepare=prepare))
            assert state.iter > 2 and len(state.q_memory_dict if state.warm_start else state.error_dict) > 0
        assert_equal_everywhere(results[0][1])
        assert_trained_alike(results[0], results[1], rtol=1e-3, atol=1e-3)


def check_post_local_sgd(rank: int, world_size: int) -> None:
    """Gradients of a subgroup after some steps; the parameters of all ranks averaged now and then."""
    results = []
    for device in ("neuron", "cpu"):
        pairs = [dist.new_group([first, first + 1]) for first in range(0, world_size, 2)]
        state = post_localSGD_hook.PostLocalSGDState(None, pairs[rank // 2], start_localSGD_iter=4)
        ddp = DDP(small_model().to(device))
        ddp.register_comm_hook(state, post_localSGD_hook.post_localSGD_hook)
        optimizer = PostLocalSGDOptimizer(
            torch.optim.SGD(ddp.parameters(), lr=0.05), PeriodicModelAverager(period=3, warmup_steps=4)
        )
        results.append(fit(ddp, optimizer, data(rank, device)))
    assert_trained_alike(*results)


def check_overlapping_hook(rank: int, world_size: int) -> None:
    """A hook that reduces on a stream of its own: backward goes on computing while a bucket is held up."""
    comm = torch.neuron.Stream()
    computed: list[torch.neuron.Event] = []

    def hook(state: object, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        ready = torch.neuron.current_stream().record_event()
        computed.append(ready)
        comm.wait_event(ready)
        with torch.neuron.stream(comm):
            work = dist.all_reduce(bucket.buffer(), op=dist.ReduceOp.AVG, async_op=True)
        return work.get_future().then(lambda done: done.value()[0])

    def register(ddp: DDP) -> None:
        ddp.register_comm_hook(None, hook)

    assert_trained_alike(train("neuron", prepare=register), on_gloo())

    ddp = DDP(small_model().to("neuron"), bucket_cap_mb=0.002)
    register(ddp)
    for held in (False, True):  # the first backward has one bucket, and rebuilds them
        computed.clear()
        gate = _C.hold_stream(comm.stream_id, comm.device_index) if held else None
        ddp(data(rank, "neuron")[0]).square().mean().backward()
        if gate is not None:
            assert len(computed) > 1
            computed[-1].synchronize()  # all gradients are there, none is reduced
            assert not comm.query()
            gate.open()
    gradient = torch.cat([p.grad.flatten() for p in ddp.parameters()])
    assert_equal_everywhere([gradient.cpu()])


def check_join(rank: int, world_size: int) -> None:
    """Ranks with fewer batches shadow the others' collectives until all have ended."""
    results = []
    for device in ("neuron", "cpu"):
        ddp = DDP(small_model().to(device))
        optimizer = torch.optim.SGD(ddp.parameters(), lr=0.05)
        with ddp.join(divide_by_initial_world_size=False):
            losses, _ = fit(ddp, optimizer, data(rank, device)[: 4 + 2 * rank])
        assert len(losses) == 4 + 2 * rank
        results.append((losses, [p.detach().cpu() for p in ddp.parameters()]))
    assert_equal_everywhere(results[0][1])
    assert_trained_alike(*results)
    ddp = DDP(small_model().to("neuron"))
    try:
        with ddp.join(throw_on_early_termination=True):
            fit(ddp, torch.optim.SGD(ddp.parameters(), lr=0.05), data(rank, "neuron")[: 2 + rank])
    except RuntimeError as error:
        assert "exhausted" in str(error) and "inputs" in str(error), error
    else:
        raise AssertionError("the ranks' inputs differ in number")


def check_zero(rank: int, world_size: int) -> None:
    """The optimizer's state is shared out; the weights are those of the plain optimizer."""

    def run(device: str, make: object) -> tuple:
        ddp = DDP(small_model().to(device))
        optimizer = make(ddp.parameters())
        return *fit(ddp, optimizer, data(rank, device)), optimizer

    plain = run("cpu", functools.partial(torch.optim.AdamW, lr=1e-2))
    for as_view in (False, True):
        ours = run(
            "neuron",
            functools.partial(
                ZeroRedundancyOptimizer,
                optimizer_class=torch.optim.AdamW,
                lr=1e-2,
                parameters_as_bucket_view=as_view,
            ),
        )
        assert_trained_alike(ours, plain)
        assert_equal_everywhere(ours[1])
        optimizer = ours[2]
        assert len(optimizer.optim.state) < len(ours[1])
        optimizer.consolidate_state_dict(to=0)
        if rank == 0:
            state = optimizer.state_dict()["state"]
            expected = plain[2].state_dict()["state"]
            for index in expected:
                torch.testing.assert_close(
                    state[index]["exp_avg"].cpu(), expected[index]["exp_avg"], rtol=1e-4, atol=1e-6
                )


def check_zero_in_the_hook(rank: int, world_size: int) -> None:
    """Each rank steps its parameters as soon as their bucket is reduced, and broadcasts them."""
    ddp = DDP(small_model().to("neuron"), gradient_as_bucket_view=True)
    optimizer = ZeroRedundancyOptimizer(
        ddp.parameters(), optimizer_class=torch.optim.SGD, overlap_with_ddp=True, lr=0.05
    )
    ddp.register_comm_hook(None, hook_with_zero_step(default_hooks.allreduce_hook, ddp, optimizer))
    batches = data(rank, "neuron")
    for inputs in batches[:2]:  # while the buckets are made again, nothing is stepped
        ddp(inputs).square().mean().backward()
    before = [p.detach().cpu() for p in ddp.parameters()]
    other = small_model()
    with torch.no_grad():
        for p, value in zip(other.parameters(), before, strict=True):
            p.copy_(value)
    reference = DDP(other)
    plain = torch.optim.SGD(reference.parameters(), lr=0.05)
    for inputs in batches[2:]:
        ddp.zero_grad()
        ddp(inputs).square().mean().backward()  # and steps
        plain.zero_grad()
        reference(inputs.cpu()).square().mean().backward()
        plain.step()
    ours = [p.detach().cpu() for p in ddp.parameters()]
    torch.testing.assert_close(ours, [p.detach() for p in reference.parameters()], rtol=1e-4, atol=1e-5)
    assert_equal_everywhere(ours)


def check_optimizer_in_backward(rank: int, world_size: int) -> None:
    results = []
    for device in ("neuron", "cpu"):
        model = small_model().to(device)
        _apply_optimizer_in_backward(torch.optim.SGD, model.parameters(), {"lr": 0.05})
        ddp = DDP(model)
        for inputs in data(rank, device):
            nn.functional.mse_loss(ddp(inputs), inputs.flip(1)).backward()
            assert all(p.grad is None for p in ddp.parameters())
        ours = [p.detach().cpu() for p in ddp.parameters()]
        results.append(ours)
    torch.testing.assert_close(results[0], results[1], rtol=1e-4, atol=1e-5)
    assert_equal_everywhere(results[0])


def check_mixed_precision(rank: int, world_size: int) -> None:
    from torch.nn.parallel.distributed import _MixedPrecision

    for policy in (
        _MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16, buffer_dtype=torch.bfloat16),
        _MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=torch.float32, buffer_dtype=torch.float32),
    ):
        seen = set()
        ddp = DDP(small_model().to("neuron"), mixed_precision=policy)
        ddp.module[0].register_forward_pre_hook(lambda module, args, seen=seen: seen.add(args[0].dtype))
        optimizer = torch.optim.SGD(ddp.parameters(), lr=0.05)
        losses = []
        for inputs in data(rank, "neuron"):
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(ddp(inputs).float(), inputs.flip(1))
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        assert seen == {torch.bfloat16}
        assert {p.dtype for p in ddp.parameters()} == {torch.float32}
        plain = DDP(small_model())
        expected = fit(plain, torch.optim.SGD(plain.parameters(), lr=0.05), data(rank, "cpu"))
        assert_trained_alike((losses, [p.detach().cpu() for p in ddp.parameters()]), expected, rtol=0.1, atol=0.05)
        assert_equal_everywhere([p.detach().cpu() for p in ddp.parameters()])


def check_buffers(rank: int, world_size: int) -> None:
    """Rank 0's running statistics are everybody's when a forward begins; each rank's own, when told so."""
    for broadcast in (True, False):
        results = []
        for device in ("neuron", "cpu"):
            torch.manual_seed(0)
            model = nn.Sequential(nn.BatchNorm1d(16), nn.Linear(16, 16)).to(device)
            ddp = DDP(model, forward_sync_buffers=broadcast)
            optimizer = torch.optim.SGD(ddp.parameters(), lr=0.05)
            trained = fit(ddp, optimizer, data(rank, device) + rank)
            ddp.eval()
            mean = ddp.module[0].running_mean.detach().cpu()
            results.append((trained[0], [*trained[1], mean]))
        assert_trained_alike(*results)


def check_device_mesh(rank: int, world_size: int) -> None:
    mesh = init_device_mesh("neuron", (world_size,), mesh_dim_names=("dp",))
    ddp = DDP(small_model().to("neuron"), device_mesh=mesh["dp"])
    ours = fit(ddp, torch.optim.SGD(ddp.parameters(), lr=0.05), data(rank, "neuron"))
    plain = DDP(small_model())
    assert_trained_alike(ours, fit(plain, torch.optim.SGD(plain.parameters(), lr=0.05), data(rank, "cpu")))


def check_replicate(rank: int, world_size: int) -> None:
    from torch.distributed._composable.replicate import replicate

    model = replicate(small_model().to("neuron"), device_mesh=init_device_mesh("neuron", (world_size,)))
    ours = fit(model, torch.optim.SGD(model.parameters(), lr=0.05), data(rank, "neuron"))
    plain = DDP(small_model())
    expected = fit(plain, torch.optim.SGD(plain.parameters(), lr=0.05), data(rank, "cpu"))
    assert_trained_alike(ours, expected)


def check_zero_and_ddp_join_together(rank: int, world_size: int) -> None:
    ddp = DDP(small_model().to("neuron"))
    optimizer = ZeroRedundancyOptimizer(ddp.parameters(), optimizer_class=torch.optim.SGD, lr=0.05)
    with Join([ddp, optimizer]):
        losses, _ = fit(ddp, optimizer, data(rank, "neuron")[: 3 + rank])
    assert len(losses) == 3 + rank
    assert_equal_everywhere([p.detach().cpu() for p in ddp.parameters()])
