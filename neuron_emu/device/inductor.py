"""What torch.compile's default backend, inductor, finds when it looks for code generation for the device: an error
that says what to do.
"""

from __future__ import annotations

from typing import Any, NoReturn


class _NoCodeGeneration:
    """Stands where inductor expects a class: refuses to be made, and at the first question."""

    def __call__(self, *_args: Any, **_options: Any) -> NoReturn:
        _refuse()

    @property
    def supports_caching(self) -> bool:
        _refuse()


def _refuse() -> NoReturn:
    raise NotImplementedError(
        "torch.compile: inductor generates no code for neuron. Use torch.compile(…, backend='aot_eager') or "
        "backend='eager', which capture the same graphs and run their operators one by one, or leave torch.compile out"
    )


# The names that inductor asks a device's module for.
Scheduling = PythonWrapperCodegen = CppWrapperCodegen = WrapperFxCodegen = _NoCodeGeneration()
