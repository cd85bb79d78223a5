"""torch's own DistributedTest as a test case of this device; upstream_suite.py runs it.

What the environment says (WORLD_SIZE, UPSTREAM_DEFAULT_DEVICE) holds from this module's import on.
"""

from __future__ import annotations

import importlib.util
import multiprocessing
import os
import re
import sys
import types
from pathlib import Path
from typing import Any

SECONDS_PER_TEST = 240
MODULE = "torch.testing._internal.distributed.distributed_test"

# The module reads these when it is imported, here and in the fork server.
os.environ.setdefault("BACKEND", "neuron")
os.environ.setdefault("WORLD_SIZE", "2")
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("NEURON_EMU_LIMITS", "extended")
os.environ.setdefault("NEURON_EMU_QUIET", "1")
os.environ["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
os.environ["DISTRIBUTED_TESTS_DEFAULT_TIMEOUT"] = str(SECONDS_PER_TEST)

DEFAULT_DEVICE = "UPSTREAM_DEFAULT_DEVICE" in os.environ

import torch  # noqa: E402
from torch.testing._internal import common_distributed  # noqa: E402

import torch_neuronx  # noqa: E402, F401

# In the module's text; the order matters.
RENAMED = [
    (
        r"^from torch\.cuda\.amp import .*$",
        "import functools\n"
        "autocast = functools.partial(torch.amp.autocast, 'neuron')\n"
        "GradScaler = functools.partial(torch.amp.GradScaler, 'neuron')",
    ),
    (r"^import torch\.cuda$", ""),
    (r"dist\.Backend\.NCCL\b", "'neuron'"),
    (r"dist\.is_nccl_available\(\)", "True"),
    (r"""(["'])nccl\1""", "'neuron'"),
    (r"\btorch\.cuda\.(?!nccl)", "torch.neuron."),
    (r"""(["'])cuda(?=[:"'])""", r"\1neuron"),
    # test_ddp_uneven_inputs trains convolutions on an image of 1000 x 1000 more than a hundred times on a rank: half an
    # hour for a core at full speed, whatever the device. The rules it tests don't ask for the size.
    (r"torch\.ones\(batch, batch, dim, dim,", "torch.ones(batch, batch, 100, 100,"),
]


# With --default-device: what only gloo and MPI do with the CPU's tensors.
OPENED = [
    (r'^( +)BACKEND != "(gloo|mpi)",', r"\1False,"),
    (r'BACKEND != "gloo", "GLOO Batch', 'False, "GLOO Batch'),
    (r'require_backend_is_available\(\{"gloo"\}\)', 'require_backend_is_available({"neuron"})'),
]


def _count_as_supported() -> None:
    """The lists and decorators by which the suite asks for hardware."""
    for feature in common_distributed.DistTestCases.backend_feature.values():
        feature.add("neuron")
    common_distributed.DistTestCases.backend_feature["neuron"] = {"neuron"}
    # As for NCCL: their tensors are the CPU's in this mode.
    for form in ("allgather_coalesced", "sendrecv anysource", "cpu barrier"):
        common_distributed.DistTestCases.skip_collective[form].add("neuron")

    def enough(_: Any, *__: Any, **___: Any) -> Any:
        return lambda test: test

    common_distributed.skip_if_lt_x_gpu = enough
    common_distributed.skip_if_no_gpu = lambda test: test
    common_distributed.nccl_skip_if_lt_x_gpu = enough
    common_distributed.require_n_gpus_for_nccl_backend = enough
    common_distributed.init_multigpu_helper = lambda size, _: {rank: [rank] for rank in range(int(size))}


def _to_device(self: Any, device: Any = None, **_: Any) -> Any:
    return self.to("neuron" if device is None else torch.device(device))  # of an index: the accelerator


def _load() -> types.ModuleType:
    """The module with the device's and the backend's names in it; nothing on disk is changed."""
    if DEFAULT_DEVICE:
        for feature in ("gpu", "cuda", "ddp", "subgroup", "plugin"):
            common_distributed.DistTestCases.backend_feature[feature].add("neuron")
    else:
        _count_as_supported()
        torch.Tensor.cuda = _to_device
        torch.nn.Module.cuda = _to_device
    spec = importlib.util.find_spec(MODULE)
    assert spec is not None and spec.origin is not None
    text = Path(spec.origin).read_text()
    for pattern, replacement in OPENED if DEFAULT_DEVICE else RENAMED:
        text, times = re.subn(pattern, replacement, text, flags=re.MULTILINE)
        assert times > 0, f"not in this torch's module: {pattern}"
    module = types.ModuleType("distributed_test_on_neuron")
    module.__file__ = spec.origin
    sys.modules[module.__name__] = module
    exec(compile(text, spec.origin, "exec", dont_inherit=True), module.__dict__)  # not with this file's __future__
    return module


upstream = _load()


def _in_environment(environment: dict[str, str], target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Each test has directories of its own and names them in the environment; the server kept the first test's."""
    os.environ.update(environment)
    target(*args, **kwargs)


class TestOnNeuron(upstream.TestDistBackend, upstream.DistributedTest._DistTestBase):  # type: ignore[misc, name-defined]
    def setUp(self) -> None:
        super().setUp()
        # From a fork server, which has imported torch and this module: spawned ranks would need longer to import them
        # than most tests take.
        self._start_processes(self._rank_process)

    @staticmethod
    def _rank_process(target: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload([__name__])  # found by PYTHONPATH: the server does not take over sys.path
        return context.Process(target=_in_environment, name=name, args=(dict(os.environ), target, args, kwargs))

    @classmethod
    def _run(cls, rank: int, *arguments: Any, **options: Any) -> None:
        os.environ["RANK"] = os.environ["LOCAL_RANK"] = str(rank)
        torch.neuron.set_device(rank)
        if DEFAULT_DEVICE:
            torch.set_default_device(torch.device("neuron", rank))
        super()._run(rank, *arguments, **options)
