"""Memory snapshots and the history behind them: PyTorch's own viewer reads them."""

from __future__ import annotations

import copy
import gc
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from gates import Hold
from scripts import run_script
from torch.cuda import _memory_viz

MIB = 1 << 20


@pytest.fixture(autouse=True)
def start_clean() -> Iterator[None]:
    torch.neuron.init()
    gc.collect()
    torch.neuron.synchronize()
    torch.neuron.empty_cache()
    yield
    torch.neuron.memory._record_memory_history(None)


def make_block(mebibytes: int) -> torch.Tensor:
    return torch.empty(mebibytes * MIB, dtype=torch.uint8, device="neuron")


def events(snapshot: dict[str, Any]) -> list[dict[str, Any]]:
    trace: list[dict[str, Any]] = snapshot["device_traces"][0]
    return trace


def block_of(snapshot: dict[str, Any], tensor: torch.Tensor) -> dict[str, Any]:
    blocks = [block for segment in snapshot["segments"] for block in segment["blocks"]]
    return next(block for block in blocks if block["address"] == tensor.data_ptr())


def functions(entry: dict[str, Any]) -> list[str]:
    return [frame["name"] for frame in entry["frames"]]


def test_events_and_blocks_have_python_frames() -> None:
    torch.neuron.memory._record_memory_history()
    kept = make_block(20)
    freed = make_block(2)
    pointer = freed.data_ptr()
    del freed
    torch.neuron.memory._record_memory_history(max_entries=1000)  # does not forget
    snapshot = torch.neuron.memory._snapshot()
    assert [event["action"] for event in events(snapshot)] == [
        "segment_alloc",
        "alloc",
        "segment_alloc",
        "alloc",
        "free_requested",
        "free_completed",
        "snapshot",
    ]
    allocation, free = events(snapshot)[3], events(snapshot)[5]
    assert allocation["addr"] == free["addr"] == pointer
    assert allocation["size"] == free["size"] == 2 * MIB
    assert functions(allocation)[:2] == ["make_block", "test_events_and_blocks_have_python_frames"]
    assert allocation["frames"][0]["filename"] == __file__
    assert functions(free)[0] == "test_events_and_blocks_have_python_frames"
    times = [event["time_us"] for event in events(snapshot)]
    assert times == sorted(times)
    block = block_of(snapshot, kept)
    assert block["state"] == "active_allocated"
    assert block["requested_size"] == 20 * MIB
    assert functions(block)[0] == "make_block"
    assert sum(segment["total_size"] for segment in snapshot["segments"]) == torch.neuron.memory_reserved()
    assert sum(segment["allocated_size"] for segment in snapshot["segments"]) == torch.neuron.memory_allocated()


def test_a_training_step_and_the_viewer(tmp_path: Path) -> None:
    torch.neuron.memory._record_memory_history()
    layer = torch.nn.Linear(256, 256).to("neuron")
    layer(torch.ones(32, 256, device="neuron")).sum().backward()
    file = tmp_path / "snapshot.pickle"
    torch.neuron.memory._dump_snapshot(str(file))
    snapshot = pickle.loads(file.read_bytes())
    assert any("forward" in functions(event) for event in events(snapshot))

    text = _memory_viz.trace(snapshot)
    assert f"{len(events(snapshot))} entries" in text
    assert "Device 0" in text

    stacks: list[str] = []
    for view in (_memory_viz.memory, _memory_viz.segments):
        view(snapshot, format_flamegraph=lambda lines: stacks.append(lines) or lines)
    for lines in stacks:
        assert "active_allocated" in lines
        assert "test_memory_history.py" in lines
        sizes = [int(line.rsplit(" ", 1)[1]) for line in lines.splitlines()]
        assert sum(sizes) == torch.neuron.memory_reserved()
    assert "total_reserved: " in _memory_viz.segsum(snapshot)
    _memory_viz.compare(snapshot["segments"], snapshot["segments"], format_flamegraph=lambda lines: lines)

    for page in (
        _memory_viz.trace_plot(copy.deepcopy(snapshot), filter_freed=True),
        _memory_viz.trace_plot(snapshot, plot_segments=True),
        _memory_viz.segment_plot(snapshot),
    ):
        assert "MemoryViz.js" in page
        assert "snapshot.pickle" in page


def test_a_block_that_another_stream_still_uses(hold: Hold, queued: bool) -> None:
    torch.neuron.memory._record_memory_history()
    side = torch.neuron.Stream()
    tensor = make_block(2)
    pointer = tensor.data_ptr()
    gate = hold(side)
    tensor.record_stream(side)
    del tensor
    snapshot = torch.neuron.memory._snapshot()
    states = {block["address"]: block["state"] for segment in snapshot["segments"] for block in segment["blocks"]}
    assert states[pointer] == "active_awaiting_free"
    assert [event["action"] for event in events(snapshot)][-2:] == ["free_requested", "snapshot"]
    gate.open()
    side.synchronize()
    torch.neuron.empty_cache()
    actions = [event["action"] for event in events(torch.neuron.memory._snapshot())]
    assert actions[-3:] == ["free_completed", "segment_free", "snapshot"]


def test_choices() -> None:
    record = torch.neuron.memory._record_memory_history
    record("state")
    kept = make_block(2)
    snapshot = torch.neuron.memory._snapshot()
    assert functions(block_of(snapshot, kept))[0] == "make_block"
    assert events(snapshot) == []

    record(context=None, max_entries=3)
    for _ in range(5):
        make_block(3)
    snapshot = torch.neuron.memory._snapshot()
    assert [event["action"] for event in events(snapshot)] == ["free_requested", "free_completed", "snapshot"]
    assert all(functions(event) == [] for event in events(snapshot))

    record(context="alloc", clear_history=True, skip_actions=["free_requested"])
    make_block(3)
    allocation, free = events(torch.neuron.memory._snapshot())[:2]
    assert (allocation["action"], free["action"]) == ("alloc", "free_completed")
    assert functions(allocation)[0] == "make_block"
    assert functions(free) == []

    record(None)
    make_block(3)
    assert events(torch.neuron.memory._snapshot()) == []
    record(True)
    record(False)
    for wrong in (
        {"enabled": "some"},
        {"context": "some"},
        {"stacks": "some"},
        {"skip_actions": ["some"]},
        {"compile_context": True},
        {"global_record_annotations": True},
    ):
        with pytest.raises(ValueError, match=f"_record_memory_history: {next(iter(wrong))}"):
            record(**wrong)


def test_memory_snapshot_without_a_recording() -> None:
    kept = make_block(2)
    segments = torch.neuron.memory_snapshot()
    assert segments == torch.neuron.memory._snapshot()["segments"]
    assert block_of({"segments": segments}, kept)["frames"] == []


def test_running_out_of_memory_is_in_the_history() -> None:
    out = run_script(
        """
    torch.neuron.memory._record_memory_history()
    def much():
        return torch.empty(65 << 20, dtype=torch.uint8, device="neuron")
    try:
        much()
    except torch.OutOfMemoryError:
        pass
    event = torch.neuron.memory._snapshot()["device_traces"][0][-2]
    print(event["action"], event["size"] >> 20, event["device_free"] >> 20, event["frames"][0]["name"])
    """,
        {"NEURON_EMU_HBM_BYTES": "64M"},
    )
    assert out.split() == ["oom", "65", "64", "much"]


def test_recording_while_threads_allocate_and_free() -> None:
    """Frames are taken under Python's lock, blocks under the pool's: neither may wait for the other."""
    out = run_script(
        """
    torch.neuron.memory._record_memory_history(max_entries=500)
    def work():
        for step in range(200):
            x = torch.ones(1000 + step, device="neuron", requires_grad=True)
            (x * 2).sum().backward()
    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        assert len(torch.neuron.memory._snapshot()["device_traces"][0]) <= 500
    for thread in threads:
        thread.join()
    print(len(torch.neuron.memory._snapshot()["device_traces"][0]))
    """
    )
    assert out.split() == ["500"]
