"""Rank side of test_work.py: Work, Future, and the order between streams, without HostCC.

Gates hold a stream back; nothing here depends on how long anything takes.
"""

from __future__ import annotations

import datetime
import threading

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional

import torch_neuronx  # noqa: F401
from neuron_emu import _C


def hold(stream: torch.Stream) -> _C.Gate:
    return _C.hold_stream(stream.stream_id, stream.device_index)


def on(stream: torch.Stream) -> object:
    return torch.neuron.stream(stream)


def total(world_size: int) -> float:
    return float(sum(range(1, world_size + 1)))


def ones(rank: int, numel: int = 4) -> torch.Tensor:
    return torch.full((numel,), float(rank + 1), device="neuron")


def sequence_number() -> int:
    return int(dist.group.WORLD._get_backend(torch.device("neuron"))._get_sequence_number_for_group())


def check_wait_orders_and_does_not_block(rank: int, world_size: int) -> None:
    tensor = ones(rank)
    gate = hold(torch.neuron.current_stream())
    work = dist.all_reduce(tensor, async_op=True)
    assert work.wait() is True
    assert work.wait() is True
    assert not work.is_completed()
    doubled = tensor * 2
    gate.open()
    assert doubled.tolist() == [2 * total(world_size)] * 4
    assert work.is_completed() and work.is_success() and work.exception() is None
    assert work.wait() is True
    assert [t.data_ptr() for t in work.result()] == [tensor.data_ptr()]


def check_wait_with_timeout_blocks_the_host(rank: int, world_size: int) -> None:
    tensor = ones(rank)
    gate = hold(torch.neuron.current_stream())
    work = dist.all_reduce(tensor, async_op=True)
    try:
        work.wait(datetime.timedelta(milliseconds=100))
    except dist.DistBackendError as error:
        assert "all_reduce" in str(error) and "100 ms" in str(error), error
    else:
        raise AssertionError("wait(timeout) returned before the work was done")
    gate.open()
    # Giving up on the wait does not give up the work.
    work.wait(datetime.timedelta(seconds=20))
    assert work.is_completed()
    assert tensor.tolist() == [total(world_size)] * 4


def check_future_is_complete_at_submission(rank: int, world_size: int) -> None:
    tensor = ones(rank)
    gate = hold(torch.neuron.current_stream())
    work = dist.all_reduce(tensor, async_op=True)
    future, outcome = work.get_future(), work.get_future_result()
    assert future.done() and not outcome.done()
    ran_on: list[int] = []

    def halve(done: torch.futures.Future) -> torch.Tensor:
        ran_on.append(threading.get_ident())
        return done.value()[0] / 2

    halved = future.then(halve)
    assert ran_on == [threading.get_ident()]
    assert not work.is_completed()
    gate.open()
    assert halved.wait().tolist() == [total(world_size) / 2] * 4
    assert outcome.wait() == 0
    assert future.wait()[0].data_ptr() == tensor.data_ptr()


def check_future_of_an_all_gather_has_a_row_per_rank(rank: int, world_size: int) -> None:
    """As ProcessGroupNCCL's, whoever's stream it is made on; outputs of several sizes stay a list."""
    outputs = [torch.zeros(4, device="neuron") for _ in range(world_size)]
    expected = [[r + 1.0] * 4 for r in range(world_size)]
    gate = hold(torch.neuron.current_stream())
    work = dist.all_gather(outputs, ones(rank), async_op=True)
    with on(torch.neuron.Stream()):
        future = work.get_future()
    assert future.done() and not work.is_completed()
    negated = future.then(lambda done: -done.value()[0])
    gate.open()
    (rows,) = future.wait()
    assert rows.tolist() == expected
    assert (-negated.wait()).tolist() == expected
    assert [output.tolist() for output in outputs] == expected

    again = dist.all_gather(outputs, ones(rank), async_op=True).get_future()
    outputs[0].zero_()
    assert again.value()[0].tolist() == expected

    uneven = [torch.zeros(r + 1, device="neuron") for r in range(world_size)]
    gathered = dist.all_gather(uneven, ones(rank, rank + 1), async_op=True).get_future().wait()
    assert [part.tolist() for part in gathered] == [[r + 1.0] * (r + 1) for r in range(world_size)]


def check_a_work_that_was_waited_for_is_not_kept(rank: int, world_size: int) -> None:
    """torch keeps a work that functional collectives may wait for, until either has waited."""
    kept = torch._C._distributed_c10d._get_work_registry_size
    with functional.allow_inflight_collective_as_graph_input_ctx():
        first, second = ones(rank), ones(rank)
        dist.all_reduce(first, async_op=True)
        work = dist.all_reduce(second, async_op=True)
        assert kept() == 2
        torch.ops.c10d_functional.wait_tensor(first)
        assert kept() == 1
        work.wait()
        assert kept() == 0
        assert first.tolist() == second.tolist() == [total(world_size)] * 4
    dist.all_reduce(first, async_op=True).wait()
    assert kept() == 0


def check_sequence_numbers(rank: int, world_size: int) -> None:
    before = sequence_number()
    for _ in range(3):
        dist.all_reduce(ones(rank))
    dist.barrier()
    assert sequence_number() == before + 4


def check_barrier_blocks_the_host(rank: int, world_size: int) -> None:
    gate = hold(torch.neuron.current_stream())
    passed = threading.Event()

    def meet() -> None:
        dist.barrier()
        passed.set()

    thread = threading.Thread(target=meet)
    thread.start()
    assert not passed.wait(0.2)
    gate.open()
    thread.join()
    assert passed.is_set()


def check_side_stream_is_routed(rank: int, world_size: int) -> None:
    """HostCC off: the collective runs on the default stream, after what is there, and the side stream after it."""
    side = torch.neuron.Stream()
    tensor = ones(rank)
    torch.neuron.synchronize()
    gate = hold(torch.neuron.default_stream())
    with on(side):
        work = dist.all_reduce(tensor, async_op=True)
        after = tensor + 1
    assert not work.is_completed() and not side.query()
    gate.open()
    side.synchronize()
    assert work.is_completed()
    with on(side):
        assert after.tolist() == [total(world_size) + 1] * 4


def check_routed_comes_after_the_submitting_stream(rank: int, world_size: int) -> None:
    side = torch.neuron.Stream()
    tensor = torch.zeros(4, device="neuron")
    torch.neuron.synchronize()
    gate = hold(side)
    with on(side):
        tensor.fill_(rank + 1)
        work = dist.all_reduce(tensor, async_op=True)
    later = torch.zeros(4, device="neuron") + 1
    assert not torch.neuron.default_stream().query()
    gate.open()
    work.wait()
    assert (tensor + later).tolist() == [total(world_size) + 1] * 4


def check_other_stream_waits_through_work(rank: int, world_size: int) -> None:
    """work.wait() orders the stream that is current at the wait, whichever submitted."""
    side = torch.neuron.Stream()
    tensor = ones(rank)
    gate = hold(torch.neuron.default_stream())
    work = dist.all_reduce(tensor, async_op=True)
    with on(side):
        work.wait()
        doubled = tensor * 2
    assert not side.query()
    gate.open()
    with on(side):
        assert doubled.tolist() == [2 * total(world_size)] * 4


def check_memory_freed_while_in_flight(rank: int, world_size: int) -> None:
    side = torch.neuron.Stream()
    torch.neuron.synchronize()
    gate = hold(torch.neuron.default_stream())
    with on(side):
        tensor = ones(rank, 4096)
        output = torch.zeros(world_size * 4096, device="neuron")
        work = dist.all_gather_into_tensor(output, tensor, async_op=True)
        del tensor
        # Would take the freed block of the side stream's order at once.
        noise = torch.full((4096,), -1.0, device="neuron")
    gate.open()
    work.wait()
    expected = torch.arange(1.0, world_size + 1).repeat_interleave(4096)
    assert torch.equal(output.cpu(), expected)
    with on(side):
        assert noise.sum().item() == -4096


def check_storage_freed_by_resize(rank: int, world_size: int) -> None:
    """As FSDP2 frees: the storage loses its memory under queued work."""
    tensor = ones(rank, 4096)
    output = torch.zeros(world_size * 4096, device="neuron")
    gate = hold(torch.neuron.default_stream())
    dist.all_gather_into_tensor(output, tensor)
    tensor.untyped_storage().resize_(0)
    noise = torch.full((4096,), -1.0, device="neuron")
    gate.open()
    assert torch.equal(output.cpu(), torch.arange(1.0, world_size + 1).repeat_interleave(4096))
    assert noise.sum().item() == -4096


def check_gradient_is_stolen(rank: int, world_size: int) -> None:
    """A call in flight holds no reference to the user's input: autograd may still take the gradient without a copy."""
    leaf = torch.zeros(1000, device="neuron", requires_grad=True)
    gradient = torch.ones(1000, device="neuron")
    output = torch.zeros(world_size * 1000, device="neuron")
    gate = hold(torch.neuron.default_stream())
    before = gradient._use_count()
    work = dist.all_gather_into_tensor(output, gradient, async_op=True)
    assert gradient._use_count() == before
    (leaf * 1).backward(gradient)
    gate.open()
    work.wait()
    assert leaf.grad is not None and leaf.grad.sum().item() == 1000
    assert output.sum().item() == 1000 * world_size


def check_slots_lapped(rank: int, world_size: int) -> None:
    """Far more calls in flight than the group has slots; rank 0 runs ahead of the others."""
    tensor = torch.ones(3, device="neuron")
    gate = hold(torch.neuron.default_stream()) if rank != 0 else None
    works = []
    for step in range(900):
        works.append(dist.all_reduce(tensor, async_op=True, op=dist.ReduceOp.AVG))
        if step == 500 and gate is not None:
            gate.open()
    for work in works:
        work.wait()
    assert tensor.tolist() == [1.0] * 3


def check_threads_submit_at_once(rank: int, world_size: int) -> None:
    """Number and place in the stream are taken together: equal calls from several threads and streams never cross."""
    errors: list[BaseException] = []

    def run(index: int) -> None:
        try:
            stream = torch.neuron.default_stream() if index == 0 else torch.neuron.Stream()
            with torch.neuron.stream(stream):
                for _ in range(100):
                    tensor = torch.ones(8, device="neuron")
                    dist.all_reduce(tensor)
                    assert tensor.tolist() == [float(world_size)] * 8
        except BaseException as error:  # noqa: BLE001
            errors.append(error)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors, errors


def check_error_in_front_of_a_collective_is_named(rank: int, world_size: int) -> None:
    """A compute error that reaches a collective ends its group, not the world, on all ranks; it names rank and op."""
    group = dist.new_group(list(range(world_size)), timeout=datetime.timedelta(seconds=20))
    tensor = torch.ones(4, device="neuron")
    dist.all_reduce(tensor, group=group)
    source, outside = torch.ones(3, device="neuron"), torch.tensor([7], device="neuron")
    gate = hold(torch.neuron.current_stream())
    if rank == 1:
        source.gather(0, outside)
    told = ""
    try:
        # Raises at once where the other rank's error is already here.
        dist.all_reduce(tensor, group=group)
    except RuntimeError as error:
        told = str(error)
    gate.open()
    try:
        torch.neuron.synchronize()
    except (RuntimeError, IndexError) as error:
        told += str(error)
    try:
        torch.neuron.synchronize()
    except (RuntimeError, IndexError) as error:
        told += str(error)
    assert "gather" in told, told
    if rank != 1:
        assert "rank 1" in told, told
    dist.all_reduce(torch.ones(1, device="neuron"))  # the world goes on
