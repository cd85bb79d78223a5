"""Rank side of test_p2p.py: messages between ranks, one by one and in batches. Limits are lifted."""

from __future__ import annotations

import torch
import torch.distributed as dist
from reference import ALL_TYPES, assert_same, values

import torch_neuronx  # noqa: F401
from neuron_emu import _C

P2POp = dist.P2POp


def hold(stream: torch.Stream) -> _C.Gate:
    return _C.hold_stream(stream.stream_id, stream.device_index)


def ring(rank: int, world_size: int) -> tuple[int, int]:
    return (rank + 1) % world_size, (rank - 1) % world_size


def wait_all(works: list[dist.Work]) -> None:
    for work in works:
        work.wait()


def check_send_and_receive(rank: int, world_size: int) -> None:
    for dtype in ALL_TYPES:
        for shape in [(), (3,), (0, 2), (5000,)]:
            if rank == 0:
                dist.send(values(0, shape, dtype).to("neuron"), dst=1)
            elif rank == 1:
                tensor = values(1, shape, dtype).to("neuron")
                assert dist.recv(tensor, src=0) == 0
                assert_same(tensor, values(0, shape, dtype), f"recv {dtype} {shape}")


def check_large(rank: int, world_size: int) -> None:
    count = 3_000_001
    after, before = ring(rank, world_size)
    target = torch.zeros(count, device="neuron")
    source = torch.full((count,), float(rank), device="neuron")
    wait_all(dist.batch_isend_irecv([P2POp(dist.isend, source, after), P2POp(dist.irecv, target, before)]))
    assert torch.equal(target.cpu(), torch.full((count,), float(before)))


def check_batch_in_any_order(rank: int, world_size: int) -> None:
    """Whatever the order in the list, on every rank another one."""
    after, before = ring(rank, world_size)
    sources = [torch.full((4000,), 10.0 * rank + i, device="neuron") for i in range(3)]
    targets = [torch.zeros(4000, device="neuron") for _ in range(3)]
    sends = [P2POp(dist.isend, t, after) for t in sources]
    receives = [P2POp(dist.irecv, t, before) for t in targets]
    wait_all(dist.batch_isend_irecv([*sends, *receives] if rank % 2 else [*receives, *sends]))
    assert [t[0].item() for t in targets] == [10.0 * before + i for i in range(3)]


def check_tags(rank: int, world_size: int) -> None:
    """Field case 10: tag 1 then tag 2 sent, tag 2 then tag 1 received; within a tag in order; in a subgroup too."""
    pair = dist.new_group([0, 1])
    for group in (None, pair):
        if rank == 0:
            for tag in (1, 2, 2):
                dist.isend(torch.full((2000,), float(tag), device="neuron"), dst=1, tag=tag, group=group)
            dist.isend(torch.full((2000,), 3.0, device="neuron"), dst=1, tag=2, group=group)
        elif rank == 1:
            received = [(tag, torch.zeros(2000, device="neuron")) for tag in (2, 1, 2, 2)]
            wait_all([dist.irecv(tensor, src=0, tag=tag, group=group) for tag, tensor in received])
            assert [tensor.sum().item() for _, tensor in received] == [4000, 2000, 4000, 6000]
    dist.barrier()


def check_a_thousand_operations_in_a_batch(rank: int, world_size: int) -> None:
    """Field case 11: no limit that the user can see, in a batch and one by one; sizes from 8 to 128 KiB."""
    after, before = ring(rank, world_size)
    sizes = [2048 << (i % 5) for i in range(500)]
    for batched in (True, False):
        sources = [torch.full((size,), float(i), device="neuron") for i, size in enumerate(sizes)]
        targets = [torch.zeros(size, device="neuron") for size in sizes]
        works, batch = [], []
        for source, target in zip(sources, targets, strict=True):
            if batched:
                batch += [P2POp(dist.isend, source, after), P2POp(dist.irecv, target, before)]
            else:
                works += [dist.isend(source, dst=after), dist.irecv(target, src=before)]
        wait_all(dist.batch_isend_irecv(batch) if batched else works)
        assert [t[-1].item() for t in targets] == [float(i) for i in range(500)]


def check_any_source(rank: int, world_size: int) -> None:
    """Field case 12: without a source, the sender's rank is told; by recv and irecv, in the world and in a subgroup."""
    groups = [(None, list(range(world_size)))]
    if world_size > 2:
        groups.append((dist.new_group([0, 2]), [0, 2]))
    for group, members in groups:
        for by in ("recv", "irecv"):
            if rank == 0:
                seen = set()
                for _ in members[1:]:
                    tensor = torch.zeros(3, device="neuron")
                    if by == "recv":
                        source = dist.recv(tensor, group=group)
                    else:
                        work = dist.irecv(tensor, group=group)
                        work.wait()
                        source = dist.get_global_rank(group or dist.group.WORLD, work._source_rank())
                    assert tensor.tolist() == [float(source)] * 3
                    seen.add(source)
                assert seen == set(members[1:])
            elif rank in members:
                dist.send(torch.full((3,), float(rank), device="neuron"), dst=0, group=group)
            dist.barrier()


def check_strided(rank: int, world_size: int) -> None:
    base = torch.arange(12.0, device="neuron").reshape(3, 4)
    if rank == 0:
        dist.send(base.t(), dst=1)
    elif rank == 1:
        target = torch.zeros(3, 4, device="neuron")
        dist.recv(target.t(), src=0)
        assert torch.equal(target.cpu(), base.cpu())
        later = torch.zeros(4, 3, device="neuron")
        del later
    dist.barrier()


def check_a_message_does_not_hold_up_the_stream(rank: int, world_size: int) -> None:
    """A receive whose sender is late: compute of the same stream goes on."""
    if rank == 0:
        tensor = torch.zeros(5000, device="neuron")
        work = dist.irecv(tensor, src=1)
        other = torch.ones(4, device="neuron") + 1
        assert other.tolist() == [2.0] * 4
        assert not work.is_completed()
        dist.send(torch.ones(1, device="neuron"), dst=1, tag=7)
        work.wait()
        assert tensor.sum().item() == 5000
    elif rank == 1:
        dist.recv(torch.zeros(1, device="neuron"), src=0, tag=7)
        # The value's arrival on the host says that rank 0 has got this far.
        torch.neuron.synchronize()
        dist.send(torch.ones(5000, device="neuron"), dst=0)
    dist.barrier()


def check_a_message_that_was_waited_for_is_completed(rank: int, world_size: int) -> None:
    """wait() returns although nobody has sent yet; from then on the stream's order is all that the result needs."""
    store = dist.distributed_c10d._get_default_store()
    if rank == 0:
        tensor = torch.zeros(5000, device="neuron")
        work = dist.irecv(tensor, src=1)
        assert not work.is_completed() and not work.is_success()
        work.wait()
        assert work.is_completed() and not work.is_success()
        store.set("waited", "1")
        assert tensor.sum().item() == 5000
        assert work.is_success()
    elif rank == 1:
        store.wait(["waited"])
        dist.send(torch.ones(5000, device="neuron"), dst=0)
    dist.barrier()


def check_messages_wait_for_their_stream(rank: int, world_size: int) -> None:
    """What is sent is what the stream has made by then; what follows the receive sees it."""
    stream = torch.neuron.current_stream()
    if rank == 0:
        tensor = torch.zeros(5000, device="neuron")
        torch.neuron.synchronize()
        gate = hold(stream)
        tensor.fill_(5)
        work = dist.isend(tensor, dst=1)
        assert not work.is_completed()
        gate.open()
        work.wait()
    elif rank == 1:
        tensor = torch.zeros(5000, device="neuron")
        dist.irecv(tensor, src=0).wait()
        doubled = tensor * 2
        assert doubled.sum().item() == 50_000
    dist.barrier()


def check_memory_is_kept(rank: int, world_size: int) -> None:
    """The sender drops its tensor at once; the receiver drops work and tensor without waiting."""
    after, before = ring(rank, world_size)
    wait_all(
        dist.batch_isend_irecv(
            [
                P2POp(dist.isend, torch.full((100_000,), float(rank), device="neuron"), after),
                P2POp(dist.irecv, torch.zeros(100_000, device="neuron"), before),
            ]
        )
    )
    noise = [torch.full((100_000,), -1.0, device="neuron") for _ in range(4)]
    dist.barrier()
    assert all(n.sum().item() == -100_000 for n in noise)


def check_future_and_outcome(rank: int, world_size: int) -> None:
    if rank == 0:
        dist.isend(torch.full((2000,), 3.0, device="neuron"), dst=1).wait()
    elif rank == 1:
        tensor = torch.zeros(2000, device="neuron")
        work = dist.irecv(tensor, src=0)
        future = work.get_future()
        assert future.done()
        assert future.then(lambda done: done.value()[0] * 2).wait().sum().item() == 12_000
        assert work.get_future_result().wait() == 0
    dist.barrier()


def check_subgroup_peers(rank: int, world_size: int) -> None:
    if world_size < 3:
        return
    group = dist.new_group([0, 2])
    if rank == 0:
        dist.send(torch.full((3,), 7.0, device="neuron"), dst=2, group=group)
    elif rank == 2:
        tensor = torch.zeros(3, device="neuron")
        dist.recv(tensor, group_src=0, group=group)
        assert tensor.tolist() == [7.0] * 3
    dist.barrier()


def check_pipeline(rank: int, world_size: int) -> None:
    """The specification's pipeline, and three steps of it against one process."""
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe

    if world_size != 2:
        return
    for schedule_type in (ScheduleGPipe, Schedule1F1B):
        torch.manual_seed(0)
        halves = [torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.ReLU()), torch.nn.Linear(16, 16)]
        whole = torch.nn.Sequential(*halves)
        data, target = torch.randn(8, 16), torch.randn(8, 16)
        torch.nn.functional.mse_loss(whole(data), target).backward()
        expected = [p.grad.clone() for p in halves[rank].parameters()]
        for p in whole.parameters():
            p.grad = None
        stage_model = halves[rank].to("neuron")
        device = next(stage_model.parameters()).device
        stage = PipelineStage(
            stage_model,
            stage_index=rank,
            num_stages=2,
            device=device,
            input_args=torch.empty(2, 16, device=device, requires_grad=rank > 0),
            output_args=torch.empty(2, 16, device=device, requires_grad=True),
            group=dist.group.WORLD,
        )
        schedule = schedule_type(stage, n_microbatches=4, loss_fn=torch.nn.MSELoss())
        if rank == 0:
            schedule.step(data.to(device))
        else:
            schedule.step(target=target.to(device))
        for got, wanted in zip(stage_model.parameters(), expected, strict=True):
            torch.testing.assert_close(got.grad.cpu(), wanted, rtol=1e-4, atol=1e-5)
