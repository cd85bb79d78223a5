"""The wheel: what is in it, and that it needs nothing but torch."""

from __future__ import annotations

import os
import re
import subprocess
import zipfile
from pathlib import Path

from environments import ROOT, Environment


def test_contents(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        (metadata,) = (archive.read(name).decode() for name in names if name.endswith(".dist-info/METADATA"))
        (points,) = (archive.read(name).decode() for name in names if name.endswith("/entry_points.txt"))
    tops = {name.split("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"neuron_emu", "torch_neuronx"}
    assert {"neuron_emu/py.typed", "neuron_emu/_C.pyi", "neuron_emu/_build_info.py", "torch_neuronx/py.typed"} <= names
    assert sum(bool(re.fullmatch(r"neuron_emu/_C\..*\.so", name)) for name in names) == 1
    assert "neuron_emu/bin/nccom-test" in names
    assert any(name.endswith("/licenses/LICENSE") for name in names)
    assert "Requires-Dist: torch==2.13.0" in metadata
    assert "Requires-Python: <3.14,>=3.10" in metadata
    assert "neuron_emu.autoload:autoload" in points
    assert "neuron-emu = neuron_emu.cli.main:main" in points


def test_runs_without_a_compiler(installed: Environment) -> None:
    script = (ROOT / "examples" / "first_script.py").read_text()
    done = installed.run("-W", "error", "-c", script, env={"PATH": str(installed.folder / "bin")})
    assert "neuron:0" in done.stdout


def test_no_path_of_the_build_in_the_extension(installed: Environment) -> None:
    (library,) = (installed.site / "neuron_emu").glob("_C*.so")
    dynamic = subprocess.run(["readelf", "-d", library], check=True, capture_output=True, text=True).stdout
    assert "RPATH" not in dynamic
    assert "RUNPATH" not in dynamic


def test_command(installed: Environment) -> None:
    command = installed.folder / "bin" / "neuron-emu"
    version = installed.run("-c", "import neuron_emu; print(neuron_emu.__version__)").stdout.strip()
    env = {**os.environ, "NEURON_EMU_INSTANCE": "trn2.3xlarge"}
    shown = subprocess.run([command, "info"], check=True, capture_output=True, text=True, env=env).stdout
    assert f"neuron-emu {version} (emulated)" in shown
    assert "trn2.3xlarge: 4 device(s)" in shown
    wrong = subprocess.run([command, "nonsense"], check=False, capture_output=True, text=True)
    assert wrong.returncode == 2


def test_environment_command_names_every_variable_and_fails_on_a_bad_one(installed: Environment) -> None:
    listed = installed.run("-m", "neuron_emu.cli.main", "env").stdout
    for name in re.findall(r'"((?:NEURON|TORCH_NEURONX|NKI)_\w+)"', (ROOT / "engine/base/env_vars.def").read_text()):
        assert f"\n{name}=" in f"\n{listed}"
    bad = installed.run("-m", "neuron_emu.cli.main", "env", "--set", env={"NEURON_EMU_SIMD": "mmx"}, check=False)
    assert bad.returncode == 1
    assert "NEURON_EMU_SIMD=mmx" in bad.stdout
    assert "error: " in bad.stdout


def test_one_version(installed: Environment) -> None:
    (version,) = re.findall(r"project\(neuron_emu VERSION ([\d.]+)", (ROOT / "CMakeLists.txt").read_text())
    script = "import neuron_emu, torch_neuronx, neuron_emu._build_info as b"
    script += "; print(neuron_emu.__version__, torch_neuronx.__version__, b.VERSION)"
    assert installed.run("-c", script).stdout.split() == [version] * 3
