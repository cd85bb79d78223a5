"""neuron-emu: PyTorch's device `neuron` and process group `neuron` on software NeuronCores.

Importing this package loads neither torch nor the extension, so that it can never be what breaks `import torch`.
`neuron_emu.registration` makes the device known to torch; `torch_neuronx` is the face that programs import.
"""

from __future__ import annotations

__all__ = ["__version__"]


def __getattr__(name: str) -> str:
    if name == "__version__":
        from importlib.metadata import version

        return version("neuron-emu")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
