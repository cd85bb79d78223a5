"""Fork: a child's use is refused with words, and never harms the parent; DataLoader workers work."""

from __future__ import annotations

import torch
from scripts import run_script
from torch.utils.data import DataLoader, Dataset

WORDS = "Cannot re-initialize neuron in forked subprocess"


def test_use_in_a_child_is_refused_and_the_parent_goes_on() -> None:
    """Forked while the device is busy: a gate holds its stream, with work queued behind."""
    out = run_script(
        f"""
    _C.set_inline(False)
    x = torch.zeros(4, device="neuron")
    x.add_(1)
    torch.neuron.synchronize()
    gate = _C.hold_stream(0, 0)
    x.add_(1)
    y = x * 3
    child = os.fork()
    if child == 0:
        said = []
        for use in (lambda: torch.ones(2, device="neuron"), lambda: x + 1, lambda: x.tolist(), lambda: x.cpu(),
                    lambda: torch.ones(2).to("neuron"), lambda: torch.neuron.synchronize(), lambda: x.add_(100),
                    lambda: torch.neuron.Stream(), lambda: torch.neuron.init(), lambda: x.to("neuron:1"),
                    lambda: torch.neuron.current_stream().synchronize()):
            try:
                use()
                said.append("went on")
            except RuntimeError as error:
                said.append("refused" if {WORDS!r} in str(error) else str(error))
        assert torch.neuron._is_in_bad_fork()
        assert not torch.neuron.is_initialized()
        assert torch.ones(3).sum().item() == 3
        del x, y
        print(said, flush=True)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert status == 0, status
    assert not torch.neuron._is_in_bad_fork()
    gate.open()
    print(x.tolist(), y.tolist())
    """
    )
    said, values = out.splitlines()
    assert said == str(["refused"] * 11)
    assert values == "[2.0, 2.0, 2.0, 2.0] [6.0, 6.0, 6.0, 6.0]"


def test_a_child_that_ends_normally_does_not_harm_the_parent() -> None:
    """Its exit handlers, destructors and allocator run, on memory that it does not have."""
    out = run_script(
        """
    x = torch.ones(1 << 20, device="neuron")
    streams = [torch.neuron.Stream() for _ in range(3)]
    event = streams[0].record_event()
    pinned = torch.ones(100).pin_memory()
    torch.neuron.synchronize()
    sys.stdout.flush()
    for _ in range(5):
        child = os.fork()
        if child == 0:
            del x, streams, event, pinned
            sys.exit(7)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 7, status
    print(x.sum().item(), (x + 1).sum().item())
    with torch.neuron.stream(streams[1]):
        print(torch.full((3,), 2.0, device="neuron").tolist())
    """
    )
    assert out.splitlines() == [f"{float(1 << 20)} {float(2 << 20)}", "[2.0, 2.0, 2.0]"]


def test_fork_before_the_start_is_free() -> None:
    out = run_script(
        """
    torch.neuron.device_count(); torch.neuron.manual_seed(3)
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        print(torch.ones(3, device="neuron").sum().item(), flush=True)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    print(torch.ones(4, device="neuron").sum().item())
    """
    )
    assert out.split() == ["3.0", "4.0"]


def test_backward_in_a_forked_child_of_a_started_parent() -> None:
    """On the CPU it may work or be refused by autograd; it neither hangs nor crashes."""
    run_script(
        """
    torch.ones(2, device="neuron").sum().item()
    child = os.fork()
    if child == 0:
        torch.ones(3, requires_grad=True).sum().backward()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert torch.ones(2, device="neuron").sum().item() == 2
    """
    )


def test_multiprocessing_fork_and_spawn() -> None:
    out = run_script(
        """
    import multiprocessing

    def refused(queue):
        try:
            torch.ones(2, device="neuron")
            queue.put("went on")
        except RuntimeError as error:
            queue.put(str(error))

    torch.ones(2, device="neuron").sum().item()
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    process = context.Process(target=refused, args=(queue,))
    process.start()
    print(queue.get(timeout=60))
    process.join()
    print(process.exitcode, torch.ones(2, device="neuron").tolist())
    """
    )
    message, rest = out.splitlines()
    assert WORDS in message
    assert "spawn" in message
    assert rest == "0 [1.0, 1.0]"


class Numbers(Dataset[torch.Tensor]):
    def __len__(self) -> int:
        return 32

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.full((4,), float(index))


def test_data_loader_workers() -> None:
    """Workers are forked from a process whose device is started; batches come pinned and are copied asynchronously."""
    torch.ones(2, device="neuron").sum().item()
    for options in (
        {"pin_memory": True},
        {"pin_memory": True, "pin_memory_device": "neuron"},
        {"persistent_workers": True},
    ):
        loader = DataLoader(Numbers(), batch_size=8, num_workers=2, **options)
        for _ in range(2):
            total = torch.zeros(4, device="neuron")
            for batch in loader:
                assert batch.is_pinned() == options.get("pin_memory", False)
                total += batch.to("neuron", non_blocking=True).sum(0)
            assert total.tolist() == [sum(range(32))] * 4


def test_data_loader_with_spawned_workers_that_use_the_device() -> None:
    loader = DataLoader(OnDevice(), batch_size=None, num_workers=1, multiprocessing_context="spawn")
    assert [batch.tolist() for batch in loader] == [[0, 0], [2, 2]]


class OnDevice(Dataset[torch.Tensor]):
    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> torch.Tensor:
        import torch_neuronx  # noqa: F401

        return (torch.full((2,), float(index), device="neuron") * 2).cpu()
