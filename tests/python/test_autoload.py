"""`import torch` finds the device by itself, and cannot be broken by it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from environments import Environment

USE = "import torch; print((torch.ones(3, device='neuron') + 1).sum().item())"

# What a program that never names the device does, with a device that cannot be used.
UNTOUCHED = """
import torch, torch.distributed
torch.manual_seed(0)
assert (torch.ones(2) + 1).tolist() == [2, 2]
assert not torch.neuron.is_available() and torch.neuron.device_count() == 0
assert torch.neuron._initialized is False and not torch.neuron.is_initialized()
assert not torch.accelerator.is_available() and torch.accelerator.device_count() == 0
assert not hasattr(torch.neuron, "__path__")
with torch.random.fork_rng():
    torch.rand(1)
(torch.ones(2, requires_grad=True) * 2).sum().backward()
assert torch.device("neuron", 1).index == 1
print("fine")
"""

# Every way to the device, each with its error.
USES = """
import torch.distributed as dist, torch_neuronx
def attempt(use):
    try:
        use()
    except Exception as error:
        print(type(error).__name__, error)
    else:
        print("no error")
attempt(lambda: torch.ones(2, device="neuron"))
attempt(lambda: torch.ones(2).to("neuron:0"))
attempt(lambda: torch.neuron.synchronize())
attempt(lambda: torch.neuron.Stream())
attempt(lambda: torch_neuronx.Stream)
attempt(lambda: dist.init_process_group("neuron", rank=0, world_size=1, store=dist.HashStore()))
attempt(lambda: exec("from torch_neuronx import synchronize"))
"""


def remove_extension(environment: Environment) -> None:
    (library,) = (environment.site / "neuron_emu").glob("_C*.so")
    library.unlink()


def truncate_extension(environment: Environment) -> None:
    (library,) = (environment.site / "neuron_emu").glob("_C*.so")
    library.write_bytes(library.read_bytes()[:5000])


def garble_extension(environment: Environment) -> None:
    (library,) = (environment.site / "neuron_emu").glob("_C*.so")
    library.write_text("not a library\n")


def build_for_another_torch(environment: Environment) -> None:
    (environment.site / "neuron_emu" / "_build_info.py").write_text('VERSION = "2.12.1"\nTORCH_VERSION = "2.12.1"\n')


def remove_build_info(environment: Environment) -> None:
    (environment.site / "neuron_emu" / "_build_info.py").unlink()


def break_own_python(environment: Environment) -> None:
    (environment.site / "neuron_emu" / "device" / "streams.py").write_text("this is no Python\n")


def raise_on_import(environment: Environment) -> None:
    (environment.site / "neuron_emu" / "registration.py").write_text("raise LookupError('strange')\n")


FAULTS = [
    (remove_extension, "cannot be loaded"),
    (truncate_extension, "cannot be loaded"),
    (garble_extension, "cannot be loaded"),
    (build_for_another_torch, "built with torch 2.12.1, and this is torch 2."),
    (remove_build_info, "has not been built"),
    (break_own_python, "invalid syntax"),
    (raise_on_import, "strange"),
]


def test_device_needs_no_import(installed: Environment) -> None:
    assert installed.run("-W", "error", "-c", USE).stdout == "6.0\n"


def test_import_starts_nothing(installed: Environment) -> None:
    script = """
import torch, torch_neuronx
torch.manual_seed(1)
torch.neuron.memory_stats(), torch.neuron.get_device_properties(0)
torch.neuron.get_rng_state(), torch.neuron.synchronize()
torch.neuron.set_device(1)
assert not torch.neuron._initialized and not torch_neuronx.is_neuron_runtime_initialized()
torch.ones(1, device="neuron")
assert torch.neuron._initialized and torch_neuronx.is_neuron_runtime_initialized()
"""
    installed.run("-c", script)


@pytest.mark.parametrize("first", ["torch", "torch_neuronx", "neuron_emu.autoload"])
@pytest.mark.parametrize("autoload", ["0", "1"])
def test_registers_once_in_any_order(installed: Environment, first: str, autoload: str) -> None:
    script = f"""
import {first}
import torch, torch.distributed as dist, torch_neuronx, sys
torch_neuronx._autoload()
assert dist.Backend.backend_list.count("neuron") == 1
assert dist.Backend.default_device_backend_map["neuron"] == "neuron"
assert sys.modules["torch.neuron"] is torch.neuron
assert torch_neuronx.Stream is torch.neuron.Stream and torch_neuronx.synchronize is torch.neuron.synchronize
import torch.neuron.memory
assert torch.neuron.memory.memory_stats is torch.neuron.memory_stats
assert torch.ones(1, device="neuron").is_neuron and torch.ones(1).neuron().device.type == "neuron"
"""
    installed.run("-W", "error", "-c", script, env={"TORCH_DEVICE_BACKEND_AUTOLOAD": autoload})


def test_without_autoload_nothing_is_registered(installed: Environment) -> None:
    script = "import torch; assert not hasattr(torch, 'neuron'); assert 'neuron_emu' not in __import__('sys').modules"
    installed.run("-c", script, env={"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"})


@pytest.mark.parametrize(("fault", "told"), FAULTS, ids=[fault.__name__ for fault, _ in FAULTS])
def test_fault_is_kept_and_raised_at_first_use(
    own_copy: Environment, fault: Callable[[Environment], None], told: str
) -> None:
    fault(own_copy)
    done = own_copy.run("-c", UNTOUCHED + USES)
    assert done.stderr.count("device 'neuron' is not usable") == 1
    assert told in done.stderr
    untouched, *uses = done.stdout.splitlines()
    assert untouched == "fine"
    assert len(uses) == 7
    for line in uses:
        assert line.startswith("RuntimeError neuron-emu: device 'neuron' is not usable"), line
        assert told in line


def test_fault_with_warnings_as_errors(own_copy: Environment) -> None:
    garble_extension(own_copy)
    assert own_copy.run("-W", "error", "-c", UNTOUCHED).stdout == "fine\n"


def test_malformed_variable_is_told_at_first_use(installed: Environment) -> None:
    env = {"NEURON_EMU_LIMITS": "nonsense"}
    installed.run("-W", "error", "-c", "import torch; torch.manual_seed(0)", env=env)
    failed = installed.run("-c", USE, env=env, check=False)
    assert failed.returncode == 1
    last = failed.stderr.splitlines()[-1]
    for part in ("NEURON_EMU_LIMITS", "nonsense", "documented", "strict", "extended"):
        assert part in last


def test_unknown_variable_gets_a_suggestion(installed: Environment) -> None:
    done = installed.run("-c", USE, env={"NEURON_EMU_LIMITZ": "strict"})
    assert "NEURON_EMU_LIMITZ" in done.stderr
    assert "NEURON_EMU_LIMITS" in done.stderr


def test_worker_beyond_the_visible_cores_is_told_at_first_use(installed: Environment) -> None:
    env = {"NEURON_RT_VISIBLE_CORES": "4-5", "LOCAL_RANK": "2", "LOCAL_WORLD_SIZE": "3"}
    installed.run("-W", "error", "-c", "import torch; assert not torch.neuron.is_available()", env=env)
    failed = installed.run("-c", USE, env=env, check=False)
    assert failed.returncode == 1
    last = failed.stderr.splitlines()[-1]
    for part in ("3", "2", "NEURON_RT_VISIBLE_CORES", "4-5"):
        assert part in last
