"""Pinned host memory, and copies that go on after the call has returned."""

from __future__ import annotations

import gc
import threading

import torch
from gates import Hold

from neuron_emu import _C


def test_pinning() -> None:
    plain = torch.arange(8.0)
    assert not plain.is_pinned()
    pinned = plain.pin_memory()
    assert pinned.is_pinned()
    assert torch.equal(pinned, plain)
    assert pinned.pin_memory() is pinned
    assert pinned[2:].is_pinned()
    assert torch.empty(3, pin_memory=True).is_pinned()
    assert torch.zeros(2, 2, pin_memory=True).tolist() == [[0, 0], [0, 0]]
    assert torch.empty_like(plain, pin_memory=True).is_pinned()
    assert not pinned.clone().is_pinned()
    assert torch.empty(0).pin_memory().numel() == 0
    assert pinned.data_ptr() % 64 == 0
    assert plain.untyped_storage().pin_memory().is_pinned()


def test_host_to_device_goes_on_after_the_call(hold: Hold, queued: bool) -> None:
    """The copy reads the pinned memory when its turn comes: proof that the call did not wait."""
    source = torch.ones(1 << 20).pin_memory()
    target = torch.zeros(1 << 20, device="neuron")
    gate = hold()
    target.copy_(source, non_blocking=True)
    result = target.sum()
    source.fill_(2)
    gate.open()
    assert result.item() == 2 << 20


def test_to_with_non_blocking(hold: Hold, queued: bool) -> None:
    source = torch.ones(1 << 18, 4).pin_memory()
    gate = hold()
    moved = source.to("neuron", non_blocking=True)
    source.fill_(3)
    gate.open()
    assert moved.eq(3).all().item()


def test_device_to_host_goes_on_after_the_call(hold: Hold, queued: bool) -> None:
    source = torch.zeros(1 << 20, device="neuron")
    target = torch.zeros(1 << 20).pin_memory()
    gate = hold()
    source.fill_(5)
    target.copy_(source, non_blocking=True)
    event = torch.neuron.current_stream().record_event()
    source.fill_(6)
    assert not event.query()
    assert target[0].item() == 0, "nothing has been copied yet"
    gate.open()
    event.synchronize()
    assert target.eq(5).all().item()


def test_cpu_non_blocking_is_complete_after_one_synchronize(either_policy: bool) -> None:
    """Field case 54: kernel chain, non_blocking copy, synchronize, compare; the result is pinned."""
    for _ in range(20):
        value = torch.ones(1 << 16, device="neuron")
        for _ in range(10):
            value = value * 2
        host = value.to("cpu", non_blocking=True)
        torch.neuron.synchronize()
        assert host.eq(1024).all()
        assert host.is_pinned()
        assert not value.cpu().is_pinned()
        assert value.cpu().eq(1024).all()
        assert value[0].item() == 1024


def test_blocking_copies_wait(hold: Hold, queued: bool) -> None:
    """Without non_blocking the caller's memory is its own again at once, pinned or not."""
    source = torch.ones(1 << 20).pin_memory()
    target = torch.zeros(1 << 20, device="neuron")
    gate = hold()
    copied: list[int] = []
    thread = threading.Thread(target=lambda: (target.copy_(source), copied.append(1)))
    thread.start()
    thread.join(0.1)
    gate.open()
    thread.join()
    source.fill_(9)
    assert target.eq(1).all().item()
    back = torch.zeros(1 << 20).pin_memory()
    gate = hold()
    target.fill_(4)
    thread = threading.Thread(target=lambda: back.copy_(target))
    thread.start()
    thread.join(0.1)
    assert thread.is_alive()
    gate.open()
    thread.join()
    assert back.eq(4).all()


def test_pinned_memory_is_kept_until_its_copies_are_done(hold: Hold, queued: bool) -> None:
    """A pinned tensor that is dropped with a copy in flight is not handed out again before the copy has run."""
    target = torch.zeros(1 << 18, device="neuron")
    source = torch.ones(1 << 18).pin_memory()
    pointer = source.data_ptr()
    gate = hold()
    target.copy_(source, non_blocking=True)
    del source
    others = [torch.full((1 << 18,), 9.0).pin_memory() for _ in range(3)]
    assert pointer not in [other.data_ptr() for other in others]
    gate.open()
    assert target.eq(1).all().item()
    del others
    again = [torch.empty(1 << 18, pin_memory=True) for _ in range(4)]
    assert pointer in [tensor.data_ptr() for tensor in again], "freed pinned memory is used again"


def test_pinned_memory_of_a_device_to_host_copy(hold: Hold, queued: bool) -> None:
    source = torch.ones(1 << 18, device="neuron")
    gate = hold()
    dropped = source.to("cpu", non_blocking=True)
    pointer = dropped.data_ptr()
    del dropped
    kept = [torch.zeros(1 << 18).pin_memory() for _ in range(3)]
    assert pointer not in [tensor.data_ptr() for tensor in kept]
    gate.open()
    torch.neuron.synchronize()
    assert all(tensor.eq(0).all() for tensor in kept)


def test_pinned_copies_of_strided_and_converted_tensors(hold: Hold, queued: bool) -> None:
    base = torch.arange(64.0).view(8, 8).pin_memory()
    for source in (base.t(), base[:, ::2], base[1:3], base.expand(2, 8, 8)):
        target = torch.zeros(source.shape, dtype=torch.bfloat16, device="neuron")
        target.copy_(source, non_blocking=True)
        assert torch.equal(target.cpu(), source.bfloat16())
    device = base.to("neuron")
    out = torch.zeros(8, 8, dtype=torch.int32).pin_memory()
    out.t().copy_(device, non_blocking=True)
    torch.neuron.synchronize()
    assert torch.equal(out, base.t().int())


def test_record_stream_of_pinned_memory(hold: Hold, queued: bool) -> None:
    side = torch.neuron.Stream()
    source = torch.ones(1 << 18).pin_memory()
    target = torch.zeros(1 << 18, device="neuron")
    torch.neuron.synchronize()
    gate = hold(side)
    with torch.neuron.stream(side):
        target.copy_(source, non_blocking=True)
    pointer = source.data_ptr()
    del source
    assert torch.empty(1 << 18, pin_memory=True).data_ptr() != pointer
    gate.open()
    side.synchronize()
    assert target.eq(1).all().item()


def test_empty_host_cache() -> None:
    kept = torch.ones(1 << 20).pin_memory()
    dropped = torch.ones(1 << 20).pin_memory()
    del dropped
    gc.collect()
    _C.empty_host_cache()
    assert kept.eq(1).all()
    assert kept.is_pinned()
    assert torch.ones(1 << 20).pin_memory().eq(1).all()
