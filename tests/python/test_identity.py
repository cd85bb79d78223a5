"""Never mistaken for the real thing: another package, a Neuron device, and the line that says what runs."""

from __future__ import annotations

from pathlib import Path

import pytest
from environments import Environment, write_wheel

USE = "import torch; print((torch.ones(3, device='neuron') + 1).sum().item())"
REAL_FILES = {"torch_neuronx/__init__.py": "REAL = True\n", "torch_neuronx/runtime.py": ""}


def pretend_device_nodes(environment: Environment, folder: Path) -> None:
    """Makes identity.py look for Neuron devices in `folder`, where there is one."""
    (folder / "neuron0").write_text("")
    (environment.site / "sitecustomize.py").write_text(
        f"import neuron_emu.identity\nneuron_emu.identity.DEVICE_NODES = {str(folder / 'neuron*')!r}\n"
    )


@pytest.mark.parametrize("name", ["torch-neuronx", "some-fork"])
@pytest.mark.parametrize("order", ["ours last", "theirs last"])
def test_two_owners(own_copy: Environment, tmp_path: Path, wheel: Path, name: str, order: str) -> None:
    own_copy.install(write_wheel(tmp_path, name, "2.13.3", REAL_FILES))
    if order == "ours last":
        own_copy.install(wheel)
    fix = f"pip uninstall -y {name} neuron-emu"

    quiet = own_copy.run("-c", "import torch; torch.manual_seed(0); print((torch.ones(2) + 1).tolist())")
    assert quiet.stdout == "[2.0, 2.0]\n"
    assert fix in quiet.stderr
    assert f"{name} 2.13.3" in quiet.stderr

    failed = own_copy.run("-c", USE, check=False)
    assert failed.returncode == 1
    assert failed.stderr.splitlines()[-1].startswith("RuntimeError: neuron-emu: device 'neuron' is not usable")
    assert fix in failed.stderr.splitlines()[-1]


def test_the_real_package_may_register_itself(own_copy: Environment, tmp_path: Path) -> None:
    """Installed last, its files are the ones that are imported: it takes the name, whichever entry point runs first."""
    register = "import torch, types\ndef _autoload():\n    torch.utils.rename_privateuse1_backend('neuron')\n"
    register += "    torch._register_device_module('neuron', types.ModuleType('theirs'))\n"
    register += "    torch.distributed.Backend.register_backend('neuron', None, devices=['neuron'])\n"
    own_copy.install(write_wheel(tmp_path, "torch-neuronx", "2.13.3", {"torch_neuronx/__init__.py": register}))
    script = "import torch, torch_neuronx; torch_neuronx._autoload(); print(torch.neuron.__name__)"
    assert own_copy.run("-c", script).stdout == "theirs\n"


def test_force_emulates_beside_the_real_package(own_copy: Environment, tmp_path: Path, wheel: Path) -> None:
    own_copy.install(write_wheel(tmp_path, "torch-neuronx", "2.13.3", REAL_FILES))
    own_copy.install(wheel)
    done = own_copy.run("-W", "error", "-c", USE, env={"NEURON_EMU_FORCE": "1"})
    assert done.stdout == "6.0\n"


def test_a_package_that_only_uses_the_name_is_no_conflict(own_copy: Environment, tmp_path: Path) -> None:
    files = {"neuron_tools/torch_neuronx/__init__.py": "", "torch_neuronx_extras/__init__.py": ""}
    own_copy.install(write_wheel(tmp_path, "neuron-tools", "1.0", files))
    assert own_copy.run("-W", "error", "-c", USE).stdout == "6.0\n"


def test_neuron_device_present(own_copy: Environment, tmp_path: Path) -> None:
    nodes = tmp_path / "dev"
    nodes.mkdir()
    pretend_device_nodes(own_copy, nodes)
    imported = own_copy.run("-c", "import torch")
    assert str(nodes / "neuron0") in imported.stderr
    failed = own_copy.run("-c", USE, check=False)
    assert failed.returncode == 1
    last = failed.stderr.splitlines()[-1]
    for part in (str(nodes / "neuron0"), "pip uninstall -y neuron-emu", "NEURON_EMU_FORCE=1"):
        assert part in last
    assert own_copy.run("-W", "error", "-c", USE, env={"NEURON_EMU_FORCE": "1"}).stdout == "6.0\n"


def test_device_nodes_are_looked_for_where_the_driver_puts_them() -> None:
    from neuron_emu import identity

    assert identity.DEVICE_NODES == "/dev/neuron*"


def test_says_once_what_runs(installed: Environment) -> None:
    script = "import torch\nprint('imported')\nfor _ in range(3): torch.ones(1, device='neuron')\ntorch.neuron.Stream()"
    done = installed.run("-c", script, env={"NEURON_EMU_QUIET": "0", "NEURON_EMU_INSTANCE": "trn2.3xlarge"})
    (line,) = done.stderr.splitlines()
    for part in ("neuron-emu", "emulated", "4 software NeuronCores", "trn2.3xlarge", "NEURON_EMU_QUIET=1"):
        assert part in line


def test_says_nothing_before_the_first_use(installed: Environment) -> None:
    script = "import torch; torch.manual_seed(0); torch.neuron.is_available(); torch.neuron.memory_allocated()"
    assert installed.run("-c", script, env={"NEURON_EMU_QUIET": "0"}).stderr == ""


def test_one_line_a_job(installed: Environment) -> None:
    env = {"NEURON_EMU_QUIET": "0", "LOCAL_WORLD_SIZE": "2"}
    lines = [installed.run("-c", USE, env={**env, "LOCAL_RANK": rank}).stderr.splitlines() for rank in ("0", "1")]
    assert [len(told) for told in lines] == [1, 0]
    second_node = {**env, "LOCAL_RANK": "0", "GROUP_RANK": "1"}
    assert installed.run("-c", USE, env=second_node).stderr == ""


def test_everything_says_emulated(installed: Environment) -> None:
    script = """
import torch, torch_neuronx
assert torch_neuronx.__emulated__ is True
assert torch.neuron.get_device_properties(0).emulated is True
assert "emulated" in torch.neuron.memory_summary()
"""
    installed.run("-c", script)
    assert "emulated" in installed.run("-m", "neuron_emu.cli.main", "info").stdout
