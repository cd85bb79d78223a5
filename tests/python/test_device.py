"""Devices: counting, naming, choosing; what starts one; threads; several in one process."""

from __future__ import annotations

import re
import threading

import pytest
import torch
from scripts import run_in_environments, run_script

from neuron_emu import _C

OUT_OF_RANGE = r"Device index 64 is out of range"


def test_count_and_properties() -> None:
    assert torch.neuron.is_available()
    assert torch.neuron.device_count() == 64
    assert torch.neuron.get_device_name() == "neuron:0"
    assert torch.neuron.get_device_name(3) == "neuron:3"
    properties = torch.neuron.get_device_properties("neuron:2")
    assert properties.name == "neuron:2"
    assert properties.total_memory == 24 << 30
    assert properties.emulated
    assert torch.get_device_module("neuron") is torch.neuron
    assert torch.neuron.is_bf16_supported()
    assert torch.neuron.get_amp_supported_dtype() == [torch.float32, torch.float16, torch.bfloat16]


def test_current_device() -> None:
    assert torch.neuron.current_device() == 0
    for index, device in enumerate((1, "neuron:2", torch.device("neuron", 3)), 1):
        torch.neuron.set_device(device)
        assert torch.neuron.current_device() == index
        assert torch.empty(1, device="neuron").device.index == torch.neuron.current_device()
    with torch.neuron.device(1):
        assert torch.neuron.current_device() == 1
        assert torch.empty(1, device="neuron").device.index == 1
        with torch.neuron.device("neuron:2"):
            assert torch.empty(1, device="neuron").device.index == 2
        with torch.neuron.device(None):
            assert torch.neuron.current_device() == 1
        with torch.neuron.device_of(torch.empty(1, device="neuron:4")):
            assert torch.neuron.current_device() == 4
        with pytest.raises(ZeroDivisionError), torch.neuron.device(5):
            _ = 1 / 0
        assert torch.neuron.current_device() == 1
    assert torch.neuron.current_device() == 3


@pytest.mark.parametrize(
    "call",
    [
        lambda: torch.neuron.set_device(64),
        lambda: torch.empty(1, device="neuron:64"),
        lambda: torch.ones(1).to("neuron:64"),
        lambda: torch.neuron.get_device_properties(64),
        lambda: torch.neuron.Stream(64),
        lambda: torch.neuron.device(64).__enter__(),
    ],
    ids=["set_device", "empty", "to", "properties", "stream", "context"],
)
def test_index_out_of_range(call: object) -> None:
    with pytest.raises((RuntimeError, ValueError), match=OUT_OF_RANGE):
        call()
    assert torch.neuron.current_device() == 0
    assert torch.ones(2, device="neuron").sum().item() == 2


@pytest.mark.parametrize(
    "call",
    [
        lambda: torch.neuron.set_device("cpu"),
        lambda: torch.neuron.get_device_name("cpu"),
        lambda: torch.neuron.synchronize("cpu"),
        lambda: torch.neuron.Stream("cpu"),
    ],
    ids=["set_device", "name", "synchronize", "stream"],
)
def test_other_device_types_are_refused(call: object) -> None:
    with pytest.raises((ValueError, RuntimeError), match="Expected neuron device"):
        call()


def test_accelerator() -> None:
    assert torch.accelerator.is_available()
    assert torch.accelerator.current_accelerator() == torch.device("neuron")
    assert torch.accelerator.device_count() == 64
    torch.accelerator.set_device_index(1)
    assert torch.accelerator.current_device_index() == 1 == torch.neuron.current_device()
    with torch.accelerator.device_index(2):
        assert torch.neuron.current_device() == 2
    assert torch.accelerator.current_stream() == torch.neuron.current_stream()
    stream = torch.Stream("neuron:1")
    torch.accelerator.set_stream(stream)
    assert torch.neuron.current_stream() == stream
    torch.accelerator.set_stream(torch.neuron.default_stream())
    torch.accelerator.synchronize()
    tensor = torch.empty(1 << 20, device="neuron")
    assert torch.accelerator.memory_allocated() >= 4 << 20
    assert torch.accelerator.max_memory_allocated() >= torch.accelerator.memory_allocated()
    assert torch.accelerator.memory_reserved() >= torch.accelerator.memory_allocated()
    assert torch.accelerator.memory_stats()["allocated_bytes.all.current"] >= tensor.nbytes
    torch.accelerator.reset_peak_memory_stats()
    torch.accelerator.reset_accumulated_memory_stats()
    torch.accelerator.empty_cache()


LOOKING = """
    torch.neuron.is_available(); torch.neuron.device_count(); torch.neuron.current_device()
    torch.neuron.get_device_name(); torch.neuron.get_device_properties(1); torch.neuron.set_device(1)
    torch.manual_seed(3); torch.neuron.manual_seed_all(3); torch.neuron.seed(); torch.neuron.initial_seed()
    torch.neuron.get_rng_state(); torch.neuron.set_rng_state(torch.neuron.get_rng_state())
    torch.neuron.memory_stats(); torch.neuron.memory_summary(); torch.neuron.mem_get_info()
    torch.neuron.empty_cache(); torch.neuron.reset_peak_memory_stats(); torch.neuron.memory_allocated()
    torch.neuron.current_stream(); torch.neuron.default_stream(); torch.neuron.synchronize()
    torch.Generator(device="neuron"); torch.neuron.Event(enable_timing=True).query()
    torch.accelerator.current_accelerator(); torch.accelerator.synchronize()
    torch.ones(3, requires_grad=True).sum().backward()
"""


def test_looking_is_not_starting() -> None:
    """Only an allocation or a command starts the runtime; backward on the CPU does not, with 64 devices visible."""
    out = run_script(
        LOOKING
        + """
    assert not torch.neuron.is_initialized() and not torch.neuron._initialized
    assert not torch_neuronx.is_neuron_runtime_initialized()
    assert all(_C.committed_bytes(i) == 0 for i in range(64))
    torch.neuron.init()
    assert torch.neuron.is_initialized() and torch_neuronx.is_neuron_runtime_initialized()
    print("ok")
    """
    )
    assert out.strip() == "ok"


def test_backward_on_the_cpu_starts_no_core() -> None:
    """autograd starts a thread for every visible index and sets the device on each."""
    out = run_script(
        """
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.GELU(), torch.nn.Linear(8, 1))
    for _ in range(3):
        model(torch.randn(4, 8)).sum().backward()
    assert torch.neuron.device_count() == 64
    assert not torch.neuron.is_initialized(), "backward on the CPU started a core"
    assert [_C.memory_stats(i)["allocation_requests"] for i in range(64)] == [0] * 64
    x = torch.ones(2, device="neuron", requires_grad=True)
    x.sum().backward()
    assert x.grad.tolist() == [1, 1]
    assert [_C.committed_bytes(i) for i in range(1, 64)] == [0] * 63
    print("ok")
    """
    )
    assert out.strip() == "ok"


FIRST_USES = (
    "torch.empty(1, device='neuron')",
    "torch.ones(2).to('neuron')",
    "torch.ones(2).neuron()",
    "torch.nn.Linear(2, 2).to('neuron')",
    "torch.neuron.Stream()",
    "torch.tensor(1, device='neuron')",
)


def test_first_use_in_every_way() -> None:
    uses = [{"FIRST": use} for use in FIRST_USES]
    said = run_in_environments("import os; exec(os.environ['FIRST']); print(torch.neuron.is_initialized())", uses)
    assert said == ["True\n"] * len(uses), said


# Indices are 8 bits in torch: at one physical core each, the last one of a trn2.48xlarge has none.
VISIBLE = [
    ({"NEURON_RT_VISIBLE_CORES": "4-5"}, 2),
    ({"NEURON_RT_VISIBLE_CORES": "4,5,6"}, 3),
    ({"NEURON_RT_VISIBLE_CORES": "7"}, 1),
    ({"NEURON_RT_NUM_CORES": "3"}, 3),
    ({"NEURON_RT_NUM_CORES": "0"}, 64),
    ({"NEURON_RT_NUM_CORES": "3", "NEURON_RT_VISIBLE_CORES": "0-1"}, 2),
    ({"NEURON_LOGICAL_NC_CONFIG": "1"}, 127),
    ({"NEURON_RT_VIRTUAL_CORE_SIZE": "1"}, 127),
    ({"NEURON_EMU_INSTANCE": "trn2.3xlarge"}, 4),
    ({"LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"}, 2),
]


def test_visible_cores() -> None:
    body = "print(torch.neuron.device_count(), torch.ones(2, device='neuron').sum().item())"
    said = run_in_environments(body, [variables for variables, _ in VISIBLE])
    assert said == [f"{count} 2.0\n" for _, count in VISIBLE]


MALFORMED = [
    ("NEURON_RT_VISIBLE_CORES", "3-1"),
    ("NEURON_RT_VISIBLE_CORES", "a"),
    ("NEURON_RT_VISIBLE_CORES", "0,2"),
    ("NEURON_RT_VISIBLE_CORES", "60-64"),
    ("NEURON_RT_NUM_CORES", "-1"),
    ("NEURON_LOGICAL_NC_CONFIG", "3"),
    ("NEURON_EMU_INSTANCE", "trn9"),
    ("NEURON_EMU_LIMITS", "loose"),
    ("NEURON_EMU_HBM_BYTES", "many"),
]


def test_malformed_environment_is_named_at_first_use() -> None:
    """`import torch` works, is_available() does not raise; the first use names variable and value."""
    body = """
    torch.neuron.is_available(), torch.neuron.device_count()
    assert torch.ones(2).sum().item() == 2
    print("so far so good")
    torch.ones(2, device="neuron")
    """
    said = run_in_environments(body, [{name: value} for name, value in MALFORMED])
    for (name, value), text in zip(MALFORMED, said, strict=True):
        assert text.startswith("so far so good"), text
        assert re.search(rf"^(ValueError|RuntimeError): .*{name}.*{re.escape(value)}", text, re.MULTILINE), text


def test_one_device_in_a_distributed_process() -> None:
    out = run_script(
        """
    import pytest
    words = "Attempted to have more than one device per process in distributed setup"
    assert torch.neuron.device_count() == 4 and torch.neuron.current_device() == 2
    for call in (lambda: torch.neuron.set_device(0), lambda: torch.empty(1, device="neuron:1"),
                 lambda: torch.ones(1).to("neuron:3"), lambda: torch.neuron.Stream(1)):
        with pytest.raises((RuntimeError, ValueError), match=words):
            call()
    with pytest.raises((RuntimeError, ValueError), match="Device index 4 is out of range"):
        torch.neuron.set_device(4)
    torch.neuron.set_device(2)
    assert torch.empty(1, device="neuron").device.index == 2
    seen = []
    thread = threading.Thread(target=lambda: seen.append(torch.ones(1, device="neuron").device.index))
    thread.start(); thread.join()
    assert seen == [2], seen
    x = torch.ones(2, device="neuron", requires_grad=True)
    (x * x).sum().backward()
    assert x.grad.device.index == 2
    assert torch.neuron.Stream().device.index == 2 and torch.neuron.Event().query()
    with torch.neuron.stream(torch.neuron.Stream()):
        assert (x + 1).device.index == 2
    assert torch.neuron.memory_allocated() > 0
    print(_C.device_properties(2)["logical_core"])
    """,
        {"LOCAL_RANK": "2", "LOCAL_WORLD_SIZE": "4", "NEURON_RT_VISIBLE_CORES": "8-11"},
    )
    assert out.strip() == "10"


def test_threads_have_their_own_current_device() -> None:
    torch.neuron.set_device(1)
    seen: list[int] = []

    def look() -> None:
        seen.append(torch.neuron.current_device())
        torch.neuron.set_device(2)
        seen.append(torch.ones(1, device="neuron").device.index)

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert seen == [0, 2]
    assert torch.neuron.current_device() == 1


def test_backward_keeps_the_device_of_each_tensor() -> None:
    """set_device holds in autograd's threads: what a backward function makes on "neuron" is where its tensor is."""

    class Ones(torch.autograd.Function):
        @staticmethod
        def forward(ctx: object, x: torch.Tensor) -> torch.Tensor:
            return x.clone()

        @staticmethod
        def backward(ctx: object, grad: torch.Tensor) -> torch.Tensor:
            seen.append(torch.neuron.current_device())
            return torch.ones(3, device="neuron")

    for index in (0, 1, 5):
        seen: list[int] = []
        leaf = torch.zeros(3, device=f"neuron:{index}", requires_grad=True)
        Ones.apply(leaf).sum().backward()
        assert seen == [index]
        assert leaf.grad.device.index == index


def test_several_devices_in_one_process(either_policy: bool) -> None:
    first, second = torch.arange(6.0, device="neuron:0"), torch.arange(6.0, device="neuron:1")
    assert (first + first).device.index == 0
    assert (second + second).device.index == 1
    assert torch.neuron.current_device() == 0
    moved = first.to("neuron:1")
    assert (moved + second).tolist() == [0, 2, 4, 6, 8, 10]
    for call in (
        lambda: first + second,
        lambda: torch.cat([first, second]),
        lambda: torch.dot(first, second),
        lambda: first.add_(second),
        lambda: torch._foreach_add([first], [second]),
    ):
        with pytest.raises(RuntimeError, match="same device.*neuron:0.*neuron:1"):
            call()
    model = torch.nn.Linear(6, 2).to("neuron:1")
    model(second[None]).sum().backward()
    assert model.weight.grad.device.index == 1
    for allocated in (
        torch.zeros(3, device="neuron:1"),
        torch.ones_like(second),
        second.new_empty(2),
        torch.randn(3, device="neuron:1"),
        torch.arange(3, device="neuron:1"),
        torch.tril_indices(3, 3, device="neuron:1"),
        torch.randperm(4, device="neuron:1"),
    ):
        assert allocated.device.index == 1
    assert _C.memory_stats(1)["allocated_bytes"]["current"] > 0
    torch.neuron.synchronize(1)


def test_can_access_peer() -> None:
    assert torch.neuron.can_device_access_peer(0, 1)
