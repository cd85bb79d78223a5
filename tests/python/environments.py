"""Throw-away Python environments: torch as in this one, and neuron-emu from its wheel, as a user would install it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
OWN = ("neuron_emu", "torch_neuronx")


class Environment:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        version = f"python{sys.version_info.major}.{sys.version_info.minor}"
        self.site = folder / "lib" / version / "site-packages"

    @property
    def python(self) -> str:
        return str(self.folder / "bin" / "python")

    def copy(self, folder: Path) -> Environment:
        shutil.copytree(self.folder, folder, symlinks=True)
        return Environment(folder)

    def install(self, wheel: Path) -> None:
        """With pip, without a compiler in reach and without any index."""
        command = [sys.executable, "-m", "pip", "--python", self.python]
        command += ["install", "-q", "--no-deps", "--no-index", "--force-reinstall", str(wheel)]
        subprocess.run(command, check=True, env={**os.environ, "PATH": str(self.folder / "bin")})

    def run(
        self, *arguments: str, check: bool = True, env: dict[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Runs this environment's Python."""
        inherited = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("PYTHON", "NEURON_", "TORCH_", "LOCAL_", "NKI_"))
        }
        done = subprocess.run(
            [self.python, *arguments],
            env={**inherited, "OMP_NUM_THREADS": "1", "NEURON_EMU_QUIET": "1", **(env or {})},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
            cwd=self.folder,
        )
        if check:
            assert done.returncode == 0, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done


def make_environment(folder: Path) -> Environment:
    """Everything that is installed here, except neuron-emu."""
    venv.create(folder, symlinks=True, with_pip=False)
    made = Environment(folder)
    for entry in Path(sysconfig.get_path("purelib")).iterdir():
        if not any(name in entry.name for name in OWN) and entry.suffix != ".pth":
            (made.site / entry.name).symlink_to(entry)
    return made


def build_wheel(folder: Path) -> Path:
    """The wheel of this tree, from the build folder that make keeps up to date."""
    command = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "-q",
        "--no-build-isolation",
        "--no-deps",
        "-w",
        str(folder),
        str(ROOT),
    ]
    subprocess.run(command, check=True, capture_output=True, text=True)
    (wheel,) = folder.glob("neuron_emu-*.whl")
    return wheel


def write_wheel(folder: Path, name: str, version: str, files: dict[str, str]) -> Path:
    """A wheel of some other project."""
    path = folder / f"{name.replace('-', '_')}-{version}-py3-none-any.whl"
    info = f"{name.replace('-', '_')}-{version}.dist-info"
    contents = {
        **files,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{file},,\n" for file in [*contents, f"{info}/RECORD"])
    with zipfile.ZipFile(path, "w") as archive:
        for file, text in {**contents, f"{info}/RECORD": record}.items():
            archive.writestr(file, text)
    return path
