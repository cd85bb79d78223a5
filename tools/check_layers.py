"""Checks who includes and imports whom.

- engine/ includes no torch, no Python and nothing of bridge/; each of its layers includes only the layers below it, as
  its CMakeLists.txt names them (LAYERS of neuron_layer and neuron_program, and TEST_LAYERS for tests); every file is in
  the list of one.
- torch_neuronx/ imports only neuron_emu and torch; neuron_emu/ never imports torch_neuronx.
- With --libraries DIR: no symbol of torch or Python in the engine's libraries below DIR.

Prints each violation and exits 1 when there is one.
"""

from __future__ import annotations

import argparse
import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

_INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]', re.MULTILINE)
_FORBIDDEN_IN_ENGINE = re.compile(r"^(ATen|c10|torch|caffe2|pybind11|bridge)/|^Python\.h$|^pybind11")
_LAYER = re.compile(r"neuron_(?:layer|program)\s*\(\s*([\w-]+)(.*?)\)", re.DOTALL)
_MORE_SOURCES = re.compile(r"target_sources\s*\(\s*neuron_(\w+)\s+PRIVATE\s+([^)]*)\)")
_SECTIONS = {"SOURCES", "HEADERS", "LAYERS", "LIBRARIES", "TESTS", "TEST_LAYERS"}
_FOREIGN_SYMBOL = re.compile(r"\b(c10|at|torch|pybind11)::|\bPy(?:_|[A-Z][a-z]+_)")


@dataclass
class Layer:
    """One neuron_layer or neuron_program: its files and whom they may include, and what its tests see as well."""

    files: set[Path] = field(default_factory=set)
    tests: set[Path] = field(default_factory=set)
    layers: list[str] = field(default_factory=list)
    test_layers: list[str] = field(default_factory=list)


def _words(body: str) -> dict[str, list[str]]:
    sections: dict[str, list[str]] = {}
    current: list[str] = []
    for word in body.split():
        if word in _SECTIONS:
            current = sections.setdefault(word, [])
        else:
            current.append(word)
    return sections


def parse_layers(engine: Path) -> dict[str, Layer]:
    """name -> layer, from every CMakeLists.txt below `engine`."""
    layers: dict[str, Layer] = {}
    for lists in sorted(engine.rglob("CMakeLists.txt")):
        text = re.sub(r"#.*", "", lists.read_text())

        def paths(words: list[str], folder: Path = lists.parent) -> set[Path]:
            return {(folder / word).resolve() for word in words}

        for name, body in _LAYER.findall(text):
            words = _words(body)
            layers[name] = Layer(
                paths(words.get("SOURCES", []) + words.get("HEADERS", [])),
                paths(words.get("TESTS", [])),
                words.get("LAYERS", []),
                words.get("TEST_LAYERS", []),
            )
        for name, sources in _MORE_SOURCES.findall(text):
            layers[name].files |= paths(sources.split())
    return layers


def closure(layers: dict[str, Layer], names: list[str]) -> set[str]:
    reached: set[str] = set()
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name not in reached:
            reached.add(name)
            waiting += layers[name].layers
    return reached


def includes(path: Path) -> list[str]:
    return _INCLUDE.findall(path.read_text())


def check_engine(root: Path) -> Iterator[str]:
    engine = root / "engine"
    layers = parse_layers(engine)
    layer_of = {path: name for name, layer in layers.items() for path in layer.files | layer.tests}
    for path in sorted([*engine.rglob("*.h"), *engine.rglob("*.cpp")]):
        where = path.relative_to(root)
        name = layer_of.get(path.resolve())
        if name is None:
            # Parts of a source, included in its middle, cannot stand in a header set.
            if not path.stem.endswith("-inl"):
                yield f"{where}: in no neuron_layer's list of files"
            continue
        layer = layers[name]
        allowed = closure(layers, [name, *(layer.test_layers if path.resolve() in layer.tests else [])])
        for include in includes(path):
            if _FORBIDDEN_IN_ENGINE.search(include):
                yield f"{where}: includes {include}; engine/ knows neither torch nor Python nor bridge/"
            elif include.startswith("engine/"):
                target = layer_of.get((root / include).resolve(), name)
                if target not in allowed:
                    yield f"{where}: includes {include}, of layer {target}; {name} may include {sorted(allowed)}"


def imported_packages(path: Path) -> Iterator[tuple[int, str]]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name.split(".")[0]) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            yield node.lineno, node.module.split(".")[0]


def check_python(root: Path) -> Iterator[str]:
    for path in sorted((root / "torch_neuronx").rglob("*.py")):
        for line, package in imported_packages(path):
            if package not in {"__future__", "typing", "torch", "neuron_emu", "torch_neuronx"}:
                yield f"{path.relative_to(root)}:{line}: imports {package}; the face only re-exports neuron_emu"
    for path in sorted((root / "neuron_emu").rglob("*.py")):
        for line, package in imported_packages(path):
            if package == "torch_neuronx":
                yield f"{path.relative_to(root)}:{line}: imports torch_neuronx, its own face"


def check_symbols(folder: Path) -> Iterator[str]:
    libraries = sorted(folder.rglob("libneuron_*.a"))
    if not libraries:
        yield f"{folder}: no engine library found"
    for library in libraries:
        listing = subprocess.run(["nm", "--demangle", library], check=True, capture_output=True, text=True).stdout
        for line in listing.splitlines():
            if _FOREIGN_SYMBOL.search(line):
                yield f"{library.name}: refers to {line.split(maxsplit=1)[-1]}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--libraries", type=Path, help="check the symbols of the engine's libraries below this folder")
    options = parser.parse_args()
    if options.libraries:
        problems = list(check_symbols(options.libraries))
    else:
        problems = [*check_engine(ROOT), *check_python(ROOT)]
    for problem in problems:
        print(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
