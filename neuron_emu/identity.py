"""Who else claims to be `neuron` on this machine, and the line that says what runs.

Two distributions that own `torch_neuronx/` overwrite each other's files without a word, and a program that means to
test here must not touch real hardware. Both are found before anything is registered. Nothing here needs torch.
"""

from __future__ import annotations

import glob
import importlib.metadata
import importlib.util
import os
import sys
from dataclasses import dataclass
from pathlib import Path

OWN_DISTRIBUTION = "neuron-emu"
FACE = "torch_neuronx"
DEVICE_NODES = "/dev/neuron*"

_TRUE = frozenset({"1", "true", "on", "yes"})


@dataclass(frozen=True)
class Conflict:
    """Something on this machine that is, or may be, the real thing."""

    what: str
    fix: str

    def __str__(self) -> str:
        return f"{self.what}. {self.fix}"


def flag(name: str) -> bool:
    """A flag that must be known before the extension, which checks its spelling, can be loaded."""
    return os.environ.get(name, "").strip().lower() in _TRUE


def forced() -> bool:
    return flag("NEURON_EMU_FORCE")


def _owns_face(distribution: importlib.metadata.Distribution) -> bool:
    # Plain text search: parsing every distribution's tables would cost each `import torch` more than all the rest.
    record = distribution.read_text("RECORD") or distribution.read_text("installed-files.txt") or ""
    if record.startswith(f"{FACE}/") or f"\n{FACE}/" in record:
        return True
    return FACE in (distribution.read_text("top_level.txt") or "").split()


def other_owners() -> list[str]:
    """The distributions other than ours that install `torch_neuronx/`, as "name version"."""
    owners = [distribution for distribution in importlib.metadata.distributions() if _owns_face(distribution)]
    owners += importlib.metadata.distributions(name="torch-neuronx")
    found = {f"{owner.name} {owner.version}" for owner in owners}
    return sorted(owner for owner in found if owner.split()[0].lower().replace("_", "-") != OWN_DISTRIBUTION)


def face_is_ours() -> bool:
    """Whether `import torch_neuronx` gets our files: the one installed last has overwritten the other's."""
    spec = importlib.util.find_spec(FACE)
    if spec is None or spec.origin is None:
        return False
    return "__emulated__" in Path(spec.origin).read_text(encoding="utf-8", errors="replace")


def conflicts() -> list[Conflict]:
    found = []
    owners = other_owners()
    if owners:
        found.append(
            Conflict(
                f"{', '.join(owners)} and {OWN_DISTRIBUTION} are installed in one environment and both own {FACE}/, "
                "so that one has overwritten the other",
                "Use one environment for each. To emulate here: pip uninstall -y "
                f"{' '.join(owner.split()[0] for owner in owners)} {OWN_DISTRIBUTION}, then install {OWN_DISTRIBUTION} "
                f"again; to use the hardware here: uninstall both, then install the real package again. "
                "NEURON_EMU_FORCE=1 emulates all the same.",
            )
        )
    nodes = sorted(glob.glob(DEVICE_NODES))
    if nodes:
        found.append(
            Conflict(
                f"this machine has Neuron devices ({nodes[0]}{', …' if len(nodes) > 1 else ''}), "
                f"and {OWN_DISTRIBUTION} would leave them idle",
                f"To use them: pip uninstall -y {OWN_DISTRIBUTION}, then install the real torch-neuronx. "
                "To emulate on this machine all the same: NEURON_EMU_FORCE=1.",
            )
        )
    return found


_announced = False


def announce(instance: str, cores: int) -> None:
    """Says once a job, from the first local rank, what runs. NEURON_EMU_QUIET=1 silences it."""
    global _announced
    if _announced:
        return
    _announced = True
    if flag("NEURON_EMU_QUIET") or os.environ.get("LOCAL_RANK", "0") != "0" or os.environ.get("GROUP_RANK", "0") != "0":
        return
    print(
        f"{OWN_DISTRIBUTION}: device 'neuron' is emulated: {cores} software NeuronCore{'s' if cores != 1 else ''} of a "
        f"{instance} on this machine's CPU, no Trainium hardware (NEURON_EMU_QUIET=1 hides this line)",
        file=sys.stderr,
        flush=True,
    )
