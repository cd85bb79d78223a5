"""The names that Python takes from the extension, those that its stub declares, and those that it has: the same."""

from __future__ import annotations

import ast
from pathlib import Path

import torch  # noqa: F401, the extension needs its libraries
from environments import ROOT

from neuron_emu import _C


def declared() -> set[str]:
    names = set()
    for node in ast.parse((ROOT / "neuron_emu" / "_C.pyi").read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            names.add(node.target.id)
    return names


def used(path: Path) -> set[str]:
    return {
        node.attr
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "_C"
    }


def test_every_name_that_python_uses_exists() -> None:
    names = {name for path in (ROOT / "neuron_emu").rglob("*.py") for name in used(path)}
    assert "device_count" in names
    assert {name for name in names if not hasattr(_C, name)} == set()


def test_the_stub_is_the_extension() -> None:
    assert declared() == {name for name in vars(_C) if not name.startswith("__")}
