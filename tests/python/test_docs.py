"""What the documentation says can be done, can be done."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from environments import ROOT, Environment

PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").glob("*.md")])
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(page: Path, language: str) -> list[str]:
    return [text for kind, text in BLOCK.findall(page.read_text()) if kind == language]


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def test_readme_opens_with_the_two_commands() -> None:
    commands = blocks(ROOT / "README.md", "bash")[0].splitlines()
    assert [command.split("#")[0].strip() for command in commands] == ["make run", "make test"]


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_lead_somewhere(page: Path) -> None:
    prose = BLOCK.sub("", page.read_text())
    for target in re.findall(r"\]\(([^)\s]+)\)", prose):
        if "://" in target:
            continue
        path, _, heading = target.partition("#")
        linked = (page.parent / path).resolve() if path else page
        assert linked.exists(), target
        if heading:
            headings = re.findall(r"^#+ (.*)$", linked.read_text(), re.MULTILINE)
            assert heading in {re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-") for text in headings}, target


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_files_that_are_named_exist(page: Path) -> None:
    named = re.findall(
        r"`((?:engine|bridge|neuron_emu|torch_neuronx|tests|tools|docs|bench|examples|cmake)/[\w./-]+)`",
        page.read_text(),
    )
    assert [path for path in named if not (ROOT / path).exists()] == []


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "python")], ids=name)
def test_python_blocks_run(page: Path, installed: Environment) -> None:
    for script in blocks(page, "python"):
        installed.run("-W", "error", "-c", script)


def test_make_targets_that_are_named_exist() -> None:
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = {
        target for page in PAGES for target in re.findall(r"\bmake ([a-z][\w-]*)\b", "\n".join(blocks(page, "bash")))
    }
    assert {"run", "test"} <= named <= targets


def test_subcommands_that_are_named_exist() -> None:
    from neuron_emu.cli.main import _COMMANDS

    named = {command for page in PAGES for command in re.findall(r"`neuron-emu ([\w-]+)[^`]*`", page.read_text())}
    assert named == set(_COMMANDS)


def test_variables_that_are_named_are_declared() -> None:
    declared = set(re.findall(r'"(\w+)"', (ROOT / "engine/base/env_vars.def").read_text()))
    for page in PAGES:
        named = set(re.findall(r"\b(?:NEURON_EMU|NEURON_RT|TORCH_NEURONX|NKI)_[A-Z_]+[A-Z]\b", page.read_text()))
        assert named <= declared, page


def test_environment_table_is_current() -> None:
    subprocess.run([sys.executable, ROOT / "tools" / "generate_env_docs.py", "--check"], check=True)


def test_adr_index_is_complete() -> None:
    folder = ROOT / "docs" / "adr"
    listed = re.findall(r"\]\((\d{4}-[\w-]+\.md)\)", (folder / "README.md").read_text())
    assert listed == sorted(path.name for path in folder.glob("0*.md"))


def test_no_path_of_a_machine() -> None:
    files = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout.splitlines()
    absolute = re.compile(r"(?<![\w.$}])/(?:home|root|Users|work)/\w")
    found = [
        file for file in files if (ROOT / file).is_file() and absolute.search((ROOT / file).read_text(errors="ignore"))
    ]
    assert [file for file in found if file != "tests/python/test_docs.py"] == []
