"""Device memory: statistics, reuse, what is given back, and running out of it."""

from __future__ import annotations

import gc

import pytest
import torch
from gates import Hold
from scripts import run_script, start_script

import torch_neuronx
from neuron_emu import _C

MIB = 1 << 20


@pytest.fixture(autouse=True)
def start_clean() -> None:
    torch.neuron.init()
    gc.collect()
    torch.neuron.synchronize()
    torch.neuron.empty_cache()
    torch.neuron.reset_peak_memory_stats()


def test_statistics_follow_allocations() -> None:
    before = torch.neuron.memory_allocated()
    requests = torch.neuron.memory_stats()["allocation_requests"]
    tensor = torch.empty(8 * MIB, dtype=torch.uint8, device="neuron")
    assert torch.neuron.memory_allocated() == before + 8 * MIB
    assert torch.neuron.memory_stats()["allocation_requests"] == requests + 1
    view = tensor[: 4 * MIB]
    assert torch.neuron.memory_allocated() == before + 8 * MIB
    del tensor
    assert torch.neuron.memory_allocated() == before + 8 * MIB, "a view keeps the memory"
    del view
    assert torch.neuron.memory_allocated() == before
    assert torch.neuron.max_memory_allocated() == before + 8 * MIB
    torch.neuron.reset_peak_memory_stats()
    assert torch.neuron.max_memory_allocated() == before
    assert torch.neuron.memory_reserved() >= torch.neuron.memory_allocated()
    assert torch.neuron.max_memory_reserved() >= torch.neuron.memory_reserved()


def test_statistics_keys() -> None:
    kept = torch.ones(100, device="neuron")
    stats = torch.neuron.memory_stats()
    for kind in ("allocated_bytes", "reserved_bytes", "active_bytes"):
        assert stats[kind]["current"] == stats[f"{kind}.all.current"] > 0
        assert stats[kind]["peak"] == stats[f"{kind}.all.peak"] >= stats[kind]["current"]
    assert stats["reserved_bytes"]["current"] >= stats["allocated_bytes"]["current"] >= stats["active_bytes"]["current"]
    for count in ("num_alloc_retries", "num_ooms", "num_tensor_frees", "allocation_requests"):
        assert isinstance(stats[count], int)
    frees = stats["num_tensor_frees"]
    del kept
    assert torch.neuron.memory_stats()["num_tensor_frees"] == frees + 1
    torch.neuron.reset_accumulated_memory_stats()
    assert torch.neuron.memory_stats()["allocation_requests"] == 0
    assert torch.neuron.memory_stats()["allocated_bytes"]["allocated"] == 0
    assert torch.neuron.memory_stats(5)["allocated_bytes"]["current"] == 0, "a device that has not started has zeros"
    free, total = torch.neuron.mem_get_info()
    assert total == 24 << 30
    assert total - free == torch.neuron.memory_reserved()


def test_what_another_stream_has_used_is_kept_until_then(hold: Hold, queued: bool) -> None:
    """Not active: FSDP2's gradients are freed while the optimizer's commands are still queued, as on CUDA."""

    def now(kind: str) -> int:
        torch.neuron.reset_peak_memory_stats()
        stats = torch.neuron.memory_stats()[kind]
        assert stats["peak"] == stats["current"]
        return int(stats["current"])

    side = torch.neuron.Stream()
    torch.neuron.synchronize()
    active, kept = now("active_bytes"), now("kept_bytes")
    tensor = torch.zeros(1000, device="neuron")
    assert now("active_bytes") == now("allocated_bytes") == active + 4096
    gate = hold(side)
    tensor.record_stream(side)
    del tensor
    assert (now("active_bytes"), now("kept_bytes")) == (active, kept + 4096)
    gate.open()
    torch.neuron.synchronize()
    assert (now("active_bytes"), now("kept_bytes")) == (active, kept)


def test_public_names_are_the_same() -> None:
    assert torch_neuronx.memory_allocated() == torch.neuron.memory_allocated()
    assert torch_neuronx.memory_stats()["limit"] == torch.neuron.memory_stats()["limit"] == 24 << 30
    for text in (torch.neuron.memory_summary(), torch_neuronx.memory_summary(0, abbreviated=True)):
        assert "Neuron Memory Summary" in text
        assert "Device" in text


@pytest.mark.parametrize(
    ("nbytes", "taken"),
    [
        (1, 256),
        (256, 256),
        (257, 512),
        (MIB - 1, MIB),
        (MIB, MIB),
        (16 * MIB, 16 * MIB),
        (16 * MIB + 1, 16 * MIB + 512),
    ],
)
def test_size_classes(nbytes: int, taken: int) -> None:
    before = torch.neuron.memory_stats()
    kept = torch.empty(nbytes, dtype=torch.uint8, device="neuron")
    after = torch.neuron.memory_stats()
    assert after["allocated_bytes"]["current"] - before["allocated_bytes"]["current"] == taken
    assert after["requested_bytes"]["current"] - before["requested_bytes"]["current"] == nbytes
    assert kept.data_ptr() % 64 == 0


def test_empty_tensors_take_nothing() -> None:
    before = torch.neuron.memory_allocated()
    kept = [torch.empty(0, 3, device="neuron") for _ in range(10)]
    assert torch.neuron.memory_allocated() == before
    assert kept[0].data_ptr() == 0


def test_freed_memory_is_used_again() -> None:
    first = torch.empty(3 * MIB, dtype=torch.uint8, device="neuron")
    pointer, reserved = first.data_ptr(), torch.neuron.memory_reserved()
    del first
    assert torch.empty(3 * MIB, dtype=torch.uint8, device="neuron").data_ptr() == pointer
    for _ in range(100):
        torch.empty(3 * MIB, dtype=torch.uint8, device="neuron")
    assert torch.neuron.memory_reserved() == reserved


def test_empty_cache_gives_pages_back() -> None:
    base = _C.committed_bytes(0)
    tensor = torch.ones(64 * MIB, dtype=torch.uint8, device="neuron")
    torch.neuron.synchronize()
    assert _C.committed_bytes(0) >= base + 64 * MIB
    del tensor
    assert torch.neuron.memory_reserved() >= 64 * MIB
    assert _C.committed_bytes(0) >= base + 64 * MIB
    torch.neuron.empty_cache()
    assert torch.neuron.memory_reserved() < 64 * MIB
    assert _C.committed_bytes(0) <= base + 2 * MIB


def test_empty_cache_keeps_what_is_used(hold: Hold, queued: bool) -> None:
    kept = torch.ones(8 * MIB, dtype=torch.uint8, device="neuron")
    freed = torch.ones(8 * MIB, dtype=torch.uint8, device="neuron")
    result = freed + 1
    del freed
    torch.neuron.empty_cache()
    assert kept.eq(1).all().item()
    assert result.eq(2).all().item()
    assert torch.ones(8 * MIB, dtype=torch.uint8, device="neuron").eq(1).all().item()


def test_memory_is_touched_lazily() -> None:
    out = run_script(
        """
    x = torch.ones(4, device="neuron")
    torch.neuron.synchronize()
    print(_C.committed_bytes(0) <= 32 << 20)
    """
    )
    assert out.strip() == "True"


def test_a_core_dump_leaves_device_memory_out() -> None:
    """24 GiB of it, mostly holes that the kernel would fill in order to write them."""
    pointer = torch.ones(4, device="neuron").data_ptr()
    found = False
    with open("/proc/self/smaps") as maps:
        for line in maps:
            fields = line.split()
            if "-" in fields[0] and not fields[0].endswith(":"):
                start, end = (int(bound, 16) for bound in fields[0].split("-"))
                found = start <= pointer < end
            elif found and fields[0] == "VmFlags:":
                assert "dd" in fields
                return
    raise AssertionError("the tensor's mapping was not found")


def _peak_of_a_chain(inline: bool) -> int:
    _C.set_inline(inline)
    torch.neuron.synchronize()
    base = torch.neuron.memory_allocated()
    torch.neuron.reset_peak_memory_stats()
    value = torch.ones(MIB, device="neuron")
    for _ in range(50):
        value = (value * 2 + 1).tanh() - 0.5
    torch.neuron.synchronize()
    return torch.neuron.max_memory_allocated() - base


def test_peak_is_what_synchronous_execution_needs(queued: bool) -> None:
    """Run-ahead does not raise the peak: same-stream reuse is immediate."""
    assert _peak_of_a_chain(inline=False) == _peak_of_a_chain(inline=True)


def test_memory_of_garbage_cycles_and_autograd_graphs() -> None:
    before = torch.neuron.memory_allocated()
    leaf = torch.ones(MIB, device="neuron", requires_grad=True)
    (leaf * 2).exp().sum().backward()
    del leaf
    gc.collect()
    torch.neuron.synchronize()
    assert torch.neuron.memory_allocated() == before


# Out of memory


def test_out_of_memory() -> None:
    """Field case 51: the cache is emptied first; the error has the sizes; the device stays usable."""
    out = run_script(
        """
    kept = []
    try:
        while True:
            kept.append(torch.ones(4 << 20, dtype=torch.uint8, device="neuron"))
    except torch.OutOfMemoryError as error:
        text = str(error)
    print(len(kept))
    words = ("requested", "allocated", "reserved", "total", "Failed to allocate 0.004GB")
    print([word for word in words if word in text])
    assert isinstance(torch.OutOfMemoryError(), RuntimeError)
    stats = torch.neuron.memory_stats()
    assert stats["num_ooms"] == 1 and stats["num_alloc_retries"] >= 1, stats
    del kept[-2:]  # room for the comparison's own results
    assert all(tensor.eq(1).all().item() for tensor in kept)
    torch.neuron.empty_cache()
    kept.append(torch.full((4 << 20,), 2, dtype=torch.uint8, device="neuron"))
    kept.pop(0)
    assert kept[-1].sum().item() == 8 << 20
    # the cache is emptied and the request retried: small free blocks give way to one large block
    del kept
    kept = [torch.empty(1 << 20, dtype=torch.uint8, device="neuron") for _ in range(48)]
    del kept
    assert torch.ones(40 << 20, dtype=torch.uint8, device="neuron").sum().item() == 40 << 20
    for call in (lambda: torch.empty(65 << 20, dtype=torch.uint8, device="neuron"),
                 lambda: torch.ones(65 << 20, dtype=torch.uint8).to("neuron"),
                 lambda: torch.zeros(1 << 23, device="neuron").double(),
                 lambda: torch.zeros(1, device="neuron").expand(1 << 26).contiguous(),
                 lambda: torch.zeros(1, device="neuron").resize_(1 << 26)):
        try:
            call()
            print("no error")
        except torch.OutOfMemoryError:
            pass
    print(torch.ones(8, device="neuron").sum().item())
    """,
        {"NEURON_EMU_HBM_BYTES": "64M"},
    )
    lines = out.splitlines()
    assert 14 <= int(lines[0]) <= 16
    assert lines[1] == "['requested', 'allocated', 'reserved', 'total', 'Failed to allocate 0.004GB']"
    assert lines[2:] == ["8.0"]


def test_out_of_memory_waits_for_other_streams_first() -> None:
    """Blocks that another stream keeps come back when it is done: the allocation waits, and does not fail."""
    out = run_script(
        """
    _C.set_inline(False)
    side = torch.neuron.Stream()
    big = torch.ones(40 << 20, dtype=torch.uint8, device="neuron")
    torch.neuron.synchronize()
    gate = _C.hold_stream(side.stream_id, 0)
    with torch.neuron.stream(side):
        total = big.sum(dtype=torch.int64)
    del big
    thread = threading.Thread(target=lambda: got.append(torch.ones(40 << 20, dtype=torch.uint8, device="neuron")))
    got = []
    thread.start()
    thread.join(0.3)
    waited = thread.is_alive()
    gate.open()
    thread.join()
    side.synchronize()
    print(waited, total.item() == 40 << 20, got[0].sum().item() == 40 << 20)
    """,
        {"NEURON_EMU_HBM_BYTES": "64M"},
    )
    assert out.split() == ["True", "True", "True"]


def test_the_hosts_memory_is_a_bound_too() -> None:
    """With a reserve larger than the host nothing can be committed: an error in time, no SIGBUS, no killed process."""
    out = run_script(
        """
    try:
        torch.ones(64 << 20, dtype=torch.uint8, device="neuron")
        print("no error")
    except torch.OutOfMemoryError as error:
        print("host" in str(error), "NEURON_EMU_HOST_RESERVE" in str(error) or "reserve" in str(error))
    print(torch.ones(3).sum().item())
    """,
        {"NEURON_EMU_HOST_RESERVE": "4096G"},
    )
    assert out.split() == ["True", "True", "3.0"]


def test_four_processes_at_once_get_errors_not_signals() -> None:
    """Each alone would fit into what the reserve leaves; together they must share, and all end well."""
    with open("/proc/meminfo") as meminfo:
        available = next(int(line.split()[1]) << 10 for line in meminfo if line.startswith("MemAvailable"))
    body = """
    kept, step = [], 64 << 20
    try:
        while len(kept) * step < 8 << 30:
            kept.append(torch.ones(step, dtype=torch.uint8, device="neuron"))
            kept[-1].sum().item()
        print("full")
    except torch.OutOfMemoryError:
        print("out of memory", len(kept))
    kept.clear()
    while True:  # until the others, which hold the rest, have given something back
        try:
            print(torch.ones(8, device="neuron").sum().item())
            break
        except torch.OutOfMemoryError:
            torch.neuron.empty_cache()
    """
    reserve = {"NEURON_EMU_HOST_RESERVE": str(max(available - 1536 * MIB, 0))}
    processes = [start_script(body, reserve) for _ in range(4)]
    for process in processes:
        stdout, stderr = process.communicate(timeout=240)
        assert process.returncode == 0, stderr
        assert stdout.splitlines()[0].startswith("out of memory"), stdout
        assert stdout.splitlines()[1] == "8.0"


def test_a_failed_kernel_allocation_is_out_of_memory() -> None:
    with pytest.raises(torch.OutOfMemoryError):
        torch.empty(25 << 30, dtype=torch.uint8, device="neuron")
    with pytest.raises((torch.OutOfMemoryError, RuntimeError)):
        torch.empty(1 << 62, dtype=torch.uint8, device="neuron")
    assert torch.ones(2, device="neuron").tolist() == [1, 1]


# Storages that change their size


def test_resize_grows_in_stream_order(hold: Hold, queued: bool) -> None:
    tensor = torch.zeros(4, device="neuron")
    gate = hold()
    tensor.fill_(3)
    tensor.resize_(8)
    tensor[4:].fill_(5)
    gate.open()
    assert tensor.tolist() == [3] * 4 + [5] * 4
    tensor.resize_(2, 2)
    assert tensor.tolist() == [[3, 3], [3, 3]]
    assert tensor.untyped_storage().nbytes() == 32


def test_storage_resize() -> None:
    tensor = torch.arange(6.0, device="neuron")
    view = tensor[2:4]
    before = torch.neuron.memory_allocated()
    tensor.untyped_storage().resize_(0)
    assert tensor.untyped_storage().nbytes() == 0
    assert torch.neuron.memory_allocated() < before
    tensor.untyped_storage().resize_(24)
    tensor.copy_(torch.arange(6.0) * 2)
    assert view.tolist() == [4, 6]
    tensor.untyped_storage().resize_(48)
    assert tensor.tolist() == [0, 2, 4, 6, 8, 10]


def test_storage_freed_under_queued_work(hold: Hold, queued: bool) -> None:
    """FSDP2 frees by resizing storages to 0 while commands on them are queued, and allocates again."""
    tensor = torch.zeros(4096, device="neuron")
    gate = hold()
    tensor.fill_(3)
    total = tensor.sum()
    product = tensor * 2
    tensor.untyped_storage().resize_(0)
    stolen = torch.full((4096,), 100.0, device="neuron")
    tensor.untyped_storage().resize_(4096 * 4)
    tensor.fill_(7)
    second = tensor.sum()
    gate.open()
    assert total.item() == 3 * 4096
    assert product.eq(6).all().item()
    assert stolen.eq(100).all().item()
    assert second.item() == 7 * 4096


def test_storage_freed_under_another_streams_work(hold: Hold, queued: bool) -> None:
    side = torch.neuron.Stream()
    tensor = torch.full((4096,), 3.0, device="neuron")
    side.wait_stream(torch.neuron.current_stream())
    gate = hold(side)
    with torch.neuron.stream(side):
        total = tensor.sum()
    tensor.untyped_storage().resize_(0)
    others = [torch.full((4096,), 100.0, device="neuron") for _ in range(4)]
    torch.neuron.current_stream().synchronize()
    gate.open()
    side.synchronize()
    assert total.item() == 3 * 4096
    assert all(other.eq(100).all().item() for other in others)


def test_set_and_data() -> None:
    first, second = torch.zeros(4, device="neuron"), torch.ones(6, device="neuron")
    first.set_(second)
    assert first.data_ptr() == second.data_ptr()
    assert first.is_set_to(second)
    first.set_(second.untyped_storage(), 2, (2, 2), (1, 2))
    assert first.tolist() == [[1, 1], [1, 1]]
    first.set_()
    assert first.numel() == 0
    assert first.device.type == "neuron"
    parameter = torch.nn.Parameter(torch.zeros(3, device="neuron"))
    parameter.data = torch.ones(5, device="neuron")
    assert parameter.tolist() == [1] * 5
