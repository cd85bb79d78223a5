"""Gates: what a test holds a stream's commands back with. Order is proved with them, never with sleeps."""

from __future__ import annotations

from collections.abc import Callable

from neuron_emu import _C

# `hold(stream)`, see conftest.
Hold = Callable[..., _C.Gate]
