"""Copies: host to device, device to host, within a device, between devices; every dtype and every kind of stride."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
import torch
from comparison import Twins
from gates import Hold

from neuron_emu import _C

DTYPES = [
    torch.float32,
    torch.float64,
    torch.float16,
    torch.bfloat16,
    torch.complex64,
    torch.int8,
    torch.int32,
    torch.int64,
    torch.uint8,
    torch.bool,
    torch.float8_e4m3fn,
]

# From a (4, 6) tensor: something to copy from or to.
LAYOUTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "contiguous": lambda t: t,
    "transposed": lambda t: t.t(),
    "offset": lambda t: t[1:3],
    "stepped": lambda t: t[:, ::2],
    "column": lambda t: t[:, 1],
    "scalar": lambda t: t[2, 3],
    "empty": lambda t: t[:0],
    "three_dimensions": lambda t: t.view(2, 2, 6).permute(2, 0, 1),
}
SOURCES = {**LAYOUTS, "expanded": lambda t: t[:1].expand(3, 6), "flipped": lambda t: t.flip(0)}


def numbers(dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return (torch.arange(24).remainder(5) if dtype.itemsize == 1 else torch.arange(24)).view(4, 6).to(dtype)


def same(actual: torch.Tensor, expected: torch.Tensor) -> bool:
    actual, expected = actual.cpu(), expected.cpu()
    if actual.dtype != expected.dtype or actual.shape != expected.shape:
        return False
    if actual.dtype == torch.float8_e4m3fn:
        actual, expected = actual.float(), expected.float()
    return torch.equal(actual, expected)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_round_trip_of_dtypes(dtype: torch.dtype, either_policy: bool) -> None:
    host = numbers(dtype)
    device = host.to("neuron")
    assert same(device, host)
    assert same(device.clone(), host)
    assert same(device.to("neuron:1"), host)
    assert same(device.t().contiguous(), host.t())


@pytest.mark.parametrize("layout", SOURCES.values(), ids=SOURCES.keys())
@pytest.mark.parametrize("target", LAYOUTS.values(), ids=LAYOUTS.keys())
@pytest.mark.parametrize("converts", [False, True], ids=["same_dtype", "other_dtype"])
def test_copy_between_layouts(
    layout: Callable[[torch.Tensor], torch.Tensor], target: Callable[[torch.Tensor], torch.Tensor], converts: bool
) -> None:
    """copy_ into every kind of view, from every kind of view, in every direction; neighbours stay untouched."""
    source_dtype = torch.int32 if converts else torch.float32
    source = layout(numbers(source_dtype))
    base = -torch.ones(4, 6)
    try:
        expected = base.clone()
        target(expected).copy_(source)
    except RuntimeError:
        with pytest.raises(RuntimeError):
            target(Twins("neuron").of(base)).copy_(Twins("neuron").of(source))
        return
    for from_device, to_device in (("cpu", "neuron"), ("neuron", "cpu"), ("neuron", "neuron"), ("neuron", "neuron:1")):
        actual = Twins(to_device).of(base)
        returned = target(actual).copy_(Twins(from_device).of(source))
        assert returned.device.type == torch.device(to_device).type
        assert same(actual, expected), (from_device, to_device)


def test_to_keeps_strides_and_formats() -> None:
    image = torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)
    for tensor in (image, numbers().t(), numbers().view(2, 2, 6).permute(2, 0, 1)):
        assert tensor.to("neuron").stride() == tensor.stride()
        assert tensor.to("neuron").cpu().stride() == tensor.stride()
        assert tensor.to("neuron", memory_format=torch.contiguous_format).is_contiguous()
        assert same(tensor.to("neuron"), tensor)
    assert image.to("neuron").is_contiguous(memory_format=torch.channels_last)


def test_to_variants() -> None:
    host = numbers()
    device = host.to("neuron")
    assert device.to("neuron") is device
    assert device.to("neuron", copy=True) is not device
    assert device.to(torch.float32) is device
    assert same(device.to("cpu", torch.int64), host.long())
    assert same(host.to("neuron", torch.bfloat16), host.bfloat16())
    assert same(host.neuron(), host)
    assert host.neuron(1).device == torch.device("neuron", 1)
    assert device.to(torch.device("neuron:1")).device.index == 1
    assert same(device.double(), host.double())
    assert same(device.type(torch.int32), host.int())
    assert same(device.new_tensor(host), host)
    assert same(torch.empty_like(host, device="neuron").copy_(host), host)


@pytest.mark.parametrize("first", ["cpu", "neuron"])
def test_conj_and_neg_bits(first: str) -> None:
    host = torch.randn(4, dtype=torch.complex64)
    for lazy in (host.conj(), host.conj().imag, host.conj().real):
        source = Twins(first).of(lazy)
        for second in ("cpu", "neuron", "neuron:1"):
            assert same(source.to(second, copy=True), lazy.clone())
    target = torch.zeros(4, dtype=torch.complex64, device="neuron")
    target.conj().copy_(host)
    assert same(target, host.conj().resolve_conj())
    target.conj().imag.copy_(host.real)
    assert same(target.imag, -host.real)


def test_copy_broadcasts() -> None:
    target = torch.zeros(3, 4, device="neuron")
    assert target.copy_(torch.arange(4.0)).tolist() == [[0, 1, 2, 3]] * 3
    assert target.copy_(torch.tensor(5.0)).tolist() == [[5] * 4] * 3
    assert target.copy_(torch.arange(3.0, device="neuron")[:, None]).tolist() == [[0] * 4, [1] * 4, [2] * 4]
    host = torch.zeros(2, 2)
    assert host.copy_(torch.tensor([7.0, 8.0], device="neuron")).tolist() == [[7, 8], [7, 8]]
    with pytest.raises(RuntimeError):
        target.copy_(torch.zeros(5))


def test_copy_onto_overlapping_self() -> None:
    """Source and target in one storage."""
    for device in ("cpu", "neuron"):
        data = torch.arange(6.0, device=device)
        data[0:3].copy_(data[3:6])
        assert data.tolist() == [3, 4, 5, 3, 4, 5]
        square = torch.arange(9.0, device=device).view(3, 3)
        square.copy_(square.clone().t())
        assert square.tolist() == [[0, 3, 6], [1, 4, 7], [2, 5, 8]]
        for target, source in ((data[0:4], data[1:5]), (square, square.t()), (data[0], data[0:2])):
            with pytest.raises(RuntimeError, match="refer to a single memory location|must match"):
                target.copy_(source)
    with pytest.raises(RuntimeError):
        torch.zeros(3, device="neuron").expand(2, 3).copy_(torch.ones(2, 3))


@pytest.mark.parametrize("elements", [3, 1 << 20], ids=["snapshot", "large"])
def test_host_memory_may_change_at_once(elements: int, hold: Hold, queued: bool) -> None:
    """A host to device copy that returned has read its source, although the stream is behind."""
    source = torch.ones(elements)
    target = torch.zeros(elements, device="neuron")
    gate = hold()
    if elements > 3:
        gate.open()  # too large for a snapshot: the copy waits for the stream
    target.copy_(source, non_blocking=True)
    source.fill_(100)
    gate.open()
    assert target.eq(1).all().item()


def test_device_reads_wait_for_queued_work(hold: Hold, queued: bool) -> None:
    """Every way in which the host reads sees all that was submitted before."""
    reads: dict[str, Callable[[torch.Tensor], object]] = {
        "item": lambda t: t[0].item(),
        "tolist": lambda t: t.tolist()[0],
        "cpu": lambda t: t.cpu()[0].item(),
        "cpu_non_blocking": lambda t: t.to("cpu", non_blocking=False)[0].item(),
        "numpy": lambda t: t.cpu().numpy()[0],
        "repr": lambda t: float(repr(t).split("[")[1].split(".")[0]),
        "bool": lambda t: 7 if bool(t[0] == 7) else 0,
        "equal": lambda t: 7 if torch.equal(t, torch.full_like(t, 7)) else 0,
        "nonzero": lambda t: 7 if t.eq(7).nonzero().numel() == 3 else 0,
    }
    for name, read in reads.items():
        tensor = torch.zeros(3, device="neuron")
        gate = hold()
        tensor.fill_(7)
        outcome: list[object] = []
        reader = threading.Thread(target=lambda read=read, tensor=tensor, outcome=outcome: outcome.append(read(tensor)))
        reader.start()
        reader.join(0.05)
        assert not outcome, f"{name} did not wait"
        gate.open()
        reader.join()
        assert outcome == [7], name


def test_copy_within_device_is_a_command(hold: Hold, queued: bool) -> None:
    source, target = torch.ones(5, device="neuron"), torch.zeros(5, device="neuron")
    stream = torch.neuron.current_stream()
    gate = hold()
    target.copy_(source)
    target[1:3].copy_(source[2:4] * 2)
    assert not stream.query()
    source.fill_(9)
    gate.open()
    assert target.tolist() == [1, 2, 2, 1, 1]


def test_copy_between_devices_is_ordered_on_both(hold: Hold, queued: bool) -> None:
    """A copy to another device waits for the source's stream; what the source's stream does next waits for the copy."""
    first, second = torch.neuron.current_stream("neuron:0"), torch.neuron.current_stream("neuron:1")
    source = torch.zeros(4, device="neuron:0")
    target = torch.zeros(4, device="neuron:1")
    gate = hold(first)
    source.fill_(1)
    target.copy_(source)
    source.fill_(2)
    after = target + 1
    assert not second.query()
    gate.open()
    assert target.tolist() == [1] * 4
    assert after.tolist() == [2] * 4
    assert source.tolist() == [2] * 4

    gate = hold(second)
    target.copy_(source)
    source.fill_(3)
    assert not first.query(), "the source was overwritten while a copy of it was still to run"
    gate.open()
    assert target.tolist() == [2] * 4
    torch.neuron.synchronize(0)
    assert source.tolist() == [3] * 4


def test_copy_from_a_freed_source(hold: Hold, queued: bool) -> None:
    """The memory of a source that is dropped stays until the copies from it are done, on whatever stream they are."""
    side = torch.neuron.Stream()
    for _ in range(3):
        source = torch.ones(1 << 16, device="neuron")
        side.wait_stream(torch.neuron.current_stream())
        gate = hold(side)
        with torch.neuron.stream(side):
            kept = source.clone()
        other = source.to("neuron:1") if torch.neuron.device_count() > 1 else source.clone()
        del source
        overwritten = torch.full((1 << 16,), 5.0, device="neuron")
        torch.neuron.current_stream().synchronize()
        gate.open()
        side.synchronize()
        assert kept.eq(1).all().item()
        assert other.eq(1).all().item()
        assert overwritten.eq(5).all().item()


def test_storages() -> None:
    device = numbers().to("neuron")
    storage = device.untyped_storage()
    assert storage.device == device.device
    assert storage.nbytes() == 24 * 4
    assert storage.cpu().tolist() == numbers().untyped_storage().tolist()
    clone = storage.clone()
    assert clone.device == device.device
    assert clone.data_ptr() != storage.data_ptr()
    storage.copy_(torch.zeros(24).untyped_storage())
    assert device.eq(0).all().item()
    assert torch.zeros(2, 2).untyped_storage().to(device="neuron").device.type == "neuron"
    view = device[1:]
    assert view.untyped_storage().data_ptr() == storage.data_ptr()
    assert view.data_ptr() == storage.data_ptr() + 24
    assert _C.memory_stats(0)["allocated_bytes"]["current"] > 0
