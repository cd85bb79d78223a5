"""The interpreter's exit, at any moment: the program ends by itself, with its own exit code, and nothing crashes."""

from __future__ import annotations

import signal
import subprocess
import textwrap
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest
from scripts import start_script

# name -> (program, exit code, what its standard output has)
PROGRAMS: dict[str, tuple[str, int, str]] = {
    "with a full queue": (
        """
    x = torch.eye(256, device="neuron")
    for _ in range(300):
        x = x @ x
    print("end")
    """,
        0,
        "end",
    ),
    "with a result that a handler reads": (
        """
    import atexit
    x = torch.ones(512, 512, device="neuron")
    atexit.register(lambda: print((x @ x).sum().item()))
    y = x
    for _ in range(50):
        y = y @ x / 512
    """,
        0,
        "134217728.0",
    ),
    "with errors that nobody has read": (
        """
    _C.set_inline(False)
    for device in (0, 1):
        torch.ones(3, device=f"neuron:{device}")[torch.tensor([5], device=f"neuron:{device}")]
    print("end")
    """,
        0,
        "end",
    ),
    "by an exception, with work on two streams": (
        """
    side = torch.neuron.Stream()
    x = torch.ones(256, 256, device="neuron")
    for _ in range(50):
        x = x @ x / 256
        side.wait_stream(torch.neuron.current_stream())
        with torch.neuron.stream(side):
            x = x + 1
        torch.neuron.current_stream().wait_stream(side)
    print("end", flush=True)
    raise ValueError("the program's own error")
    """,
        1,
        "end",
    ),
    "by sys.exit in a backward hook": (
        """
    x = torch.ones(4, device="neuron", requires_grad=True)
    x.register_hook(lambda grad: sys.exit(7))
    (x * 2).sum().backward()
    """,
        7,
        "",
    ),
    "by os._exit": (
        """
    x = torch.ones(256, 256, device="neuron")
    for _ in range(100):
        x = x @ x / 256
    print("end", flush=True)
    os._exit(3)
    """,
        3,
        "end",
    ),
    "with tensors in cycles and in modules": (
        """
    import types
    class Keeper:
        def __init__(self):
            self.me, self.tensor = self, torch.ones(4, device="neuron")
            self.event, self.stream = torch.neuron.Event(), torch.neuron.Stream()
            self.event.record()
        def __del__(self):
            self.tensor.add_(1)
    kept = Keeper()
    torch.kept = Keeper()
    sys.modules["keeper"] = module = types.ModuleType("keeper")
    module.kept = Keeper()
    module.graph = (torch.ones(3, device="neuron", requires_grad=True) * 2).sum()
    print("end")
    """,
        0,
        "end",
    ),
    "while other threads submit": (
        """
    stop = threading.Event()
    def work(device):
        x = torch.ones(64, 64, device=f"neuron:{device}", requires_grad=True)
        while not stop.is_set():
            (x @ x).sum().backward()
            x.grad = None
    threads = [threading.Thread(target=work, args=(index % 2,)) for index in range(3)]
    for thread in threads:
        thread.start()
    threading.Timer(0.5, stop.set).start()
    print("end")
    """,
        0,
        "end",
    ),
    "with a recording of the memory's history": (
        """
    torch.neuron.memory._record_memory_history()
    kept = [torch.ones(1000, device="neuron") for _ in range(100)]
    print("end")
    """,
        0,
        "end",
    ),
    "by a signal, while the host waits": (
        """
    import signal
    threading.Timer(1, lambda: os.kill(os.getpid(), signal.SIGTERM)).start()
    gate = _C.hold_stream(torch.neuron.current_stream().stream_id, 0)
    torch.ones(3, device="neuron").add_(1)
    print("end", flush=True)
    torch.neuron.synchronize()
    """,
        -signal.SIGTERM,
        "end",
    ),
}
SECONDS = 120


def _run(body: str) -> tuple[int, str, str]:
    process = start_script(textwrap.dedent(body))
    try:
        stdout, stderr = process.communicate(timeout=SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        stdout, stderr = process.communicate()
        return -1000, stdout, f"it did not end within {SECONDS} s\n{stderr}"
    return process.returncode, stdout, stderr


@pytest.fixture(scope="module")
def runs() -> Iterator[dict[str, Future[tuple[int, str, str]]]]:
    """All programs, two at a time: most of their time is the import of torch."""
    with ThreadPoolExecutor(2) as pool:
        yield {name: pool.submit(_run, body) for name, (body, _, _) in PROGRAMS.items()}


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_ends(name: str, runs: dict[str, Future[tuple[int, str, str]]]) -> None:
    _, expected, words = PROGRAMS[name]
    code, stdout, stderr = runs[name].result()
    assert code == expected, stderr
    assert stdout.strip() == words
    for sign in ("Fatal Python error", "terminate called", "Segmentation fault", "double free"):
        assert sign not in stderr


@pytest.mark.long
def test_a_program_ends_though_its_queue_never_does() -> None:
    code, stdout, stderr = _run(
        """
    side = torch.neuron.Stream()
    gate = _C.hold_stream(side.stream_id, 0)
    torch.neuron.current_stream().wait_stream(side)
    torch.ones(3, device="neuron").add_(1)
    print("end")
    """
    )
    assert (code, stdout.strip()) == (0, "end"), stderr
