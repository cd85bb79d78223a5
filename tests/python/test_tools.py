"""The checks find what they are for."""

from __future__ import annotations

import subprocess
from pathlib import Path

import check_file_length
import check_layers
import generate_env_docs
import pytest


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A small engine of two layers, above nothing and above `base`."""
    files = {
        "engine/base/CMakeLists.txt": "neuron_layer(base\n  SOURCES a.cpp # why\n  HEADERS a.h)\n",
        "engine/base/a.h": "#pragma once\n#include <vector>\n",
        "engine/base/a.cpp": '#include "engine/base/a.h"\n',
        "engine/top/CMakeLists.txt": "neuron_layer(top SOURCES t.cpp LAYERS base TESTS t_test.cpp TEST_LAYERS aid)\n"
        "target_sources(neuron_top PRIVATE extra.cpp)\nneuron_layer(aid HEADERS ../aid/aid.h LAYERS base)\n"
        "neuron_program(a-program SOURCES main.cpp LAYERS top)\n",
        "engine/top/main.cpp": '#include "engine/base/a.h"\n',
        "engine/top/t.cpp": '#include "engine/base/a.h"\n',
        "engine/top/extra.cpp": "",
        "engine/top/t_test.cpp": '#include "engine/aid/aid.h"\n',
        "engine/aid/aid.h": '#include "engine/base/a.h"\n',
        "torch_neuronx/__init__.py": "import torch\nfrom neuron_emu.device import Stream\n",
        "neuron_emu/__init__.py": "import sys\n",
        "tools/long_files.txt": "# none\n",
    }
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    for name in check_file_length.SOURCE_ROOTS:
        (tmp_path / name).mkdir(exist_ok=True)
    return tmp_path


def test_a_good_tree_passes(tree: Path) -> None:
    assert list(check_layers.check_engine(tree)) == []
    assert list(check_layers.check_python(tree)) == []
    assert list(check_file_length.violations(tree)) == []


@pytest.mark.parametrize(
    ("file", "line", "told"),
    [
        ("engine/base/a.cpp", "#include <torch/torch.h>", "knows neither torch nor Python"),
        ("engine/base/a.h", "#include <ATen/Tensor.h>", "knows neither torch nor Python"),
        ("engine/top/t.cpp", "#  include <c10/core/Device.h>", "knows neither torch nor Python"),
        ("engine/top/t.cpp", "#include <Python.h>", "knows neither torch nor Python"),
        ("engine/top/t.cpp", '#include "bridge/runtime/streams.h"', "knows neither torch nor Python"),
        ("engine/top/t.cpp", '#include "engine/aid/aid.h"', "of layer aid"),
        ("engine/base/a.h", '#include "engine/aid/aid.h"', "of layer aid"),
        ("engine/top/main.cpp", '#include "engine/aid/aid.h"', "of layer aid; a-program may include"),
        ("engine/base/stray.cpp", "", "in no neuron_layer"),
    ],
)
def test_engine_violations(tree: Path, file: str, line: str, told: str) -> None:
    with (tree / file).open("a") as stream:
        stream.write(line + "\n")
    (problem,) = check_layers.check_engine(tree)
    assert problem.startswith(f"{file}: ")
    assert told in problem


@pytest.mark.parametrize(
    ("file", "line"), [("neuron_emu/__init__.py", "import torch_neuronx"), ("torch_neuronx/__init__.py", "import os")]
)
def test_python_violations(tree: Path, file: str, line: str) -> None:
    (tree / file).write_text(line + "\n")
    (problem,) = check_layers.check_python(tree)
    assert problem.startswith(f"{file}:1: ")


def test_foreign_symbol_is_found(tree: Path) -> None:
    source = tree / "x.cpp"
    source.write_text("namespace c10 { void warn(); }\nvoid f() { c10::warn(); }\n")
    subprocess.run(["g++", "-c", source, "-o", tree / "x.o"], check=True)
    subprocess.run(["ar", "rc", tree / "libneuron_x.a", tree / "x.o"], check=True)
    (problem,) = check_layers.check_symbols(tree)
    assert "libneuron_x.a: refers to" in problem
    assert "c10::warn()" in problem
    (tree / "libneuron_x.a").unlink()
    assert list(check_layers.check_symbols(tree)) == [f"{tree}: no engine library found"]


def test_long_files(tree: Path) -> None:
    (tree / "engine/base/a.h").write_text("\n" * 251)
    (tree / "bench/README.md").write_text("\n" * 41)
    problems = list(check_file_length.violations(tree))
    assert [problem.split(":")[0] for problem in problems] == ["engine/base/a.h", "bench/README.md"]
    (tree / "tools/long_files.txt").write_text("engine/base/a.h 260 one table\nbench/README.md 41 figures\n")
    assert list(check_file_length.violations(tree)) == []
    (tree / "engine/base/a.h").write_text("\n" * 261)
    (tree / "bench/README.md").write_text("")
    problems = list(check_file_length.violations(tree))
    assert "261 lines, limit 260" in problems[0]
    assert "it needs no line" in problems[1]
    (tree / "bench/README.md").unlink()
    assert "there is no such file" in list(check_file_length.violations(tree))[-1]


def test_environment_declaration() -> None:
    text = 'HONOURED(a, "NEURON_EMU_A", Flag, "0", "One | two.")\nACCEPTED("B", "x", "Three.")\n'
    page = generate_env_docs.render(text)
    assert "| `NEURON_EMU_A` | Flag | `0` | One \\| two. |" in page
    assert "| `B` | `x` | Three. |" in page
    with pytest.raises(ValueError, match="2 declarations, of which 1"):
        generate_env_docs.parse('HONOURED(a, "A", Flag, "0", "x")\nACCEPTED("B", nothing)\n')
