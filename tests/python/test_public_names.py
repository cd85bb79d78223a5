"""torch.neuron and torch_neuronx: the names that the product documents, and those that torch asks for."""

from __future__ import annotations

import ast

import pytest
import torch
from environments import ROOT

import neuron_emu.device
import torch_neuronx

TORCH_NEURON = [
    "is_available",
    "is_initialized",
    "init",
    "device_count",
    "current_device",
    "set_device",
    "device",
    "get_device_name",
    "get_device_properties",
    "synchronize",
    "Stream",
    "stream",
    "set_stream",
    "current_stream",
    "default_stream",
    "Event",
    "memory_allocated",
    "max_memory_allocated",
    "memory_reserved",
    "max_memory_reserved",
    "memory_stats",
    "reset_peak_memory_stats",
    "reset_accumulated_memory_stats",
    "empty_cache",
    "memory_summary",
    "manual_seed",
    "manual_seed_all",
    "seed",
    "seed_all",
    "initial_seed",
    "get_rng_state",
    "set_rng_state",
    "is_bf16_supported",
    "get_amp_supported_dtype",
]
ASKED_BY_TORCH = [
    "_initialized",
    "_is_in_bad_fork",
    "_lazy_init",
    "_lazy_call",
    "default_generators",
    "StreamContext",
    "get_rng_state_all",
    "set_rng_state_all",
    "amp",
    "mem_get_info",
    "_exchange_device",
    "_maybe_exchange_device",
    "device_of",
]
TORCH_NEURONX = [
    "Stream",
    "stream",
    "synchronize",
    "memory_allocated",
    "max_memory_allocated",
    "memory_reserved",
    "max_memory_reserved",
    "memory_stats",
    "memory_summary",
    "empty_cache",
    "reset_peak_memory_stats",
    "reset_accumulated_memory_stats",
    "is_neuron_runtime_initialized",
    "get_executed_ops",
    "get_fallback_ops",
    "clear_op_tracking",
]


@pytest.mark.parametrize("name", [*TORCH_NEURON, *ASKED_BY_TORCH])
def test_torch_neuron_has(name: str) -> None:
    assert hasattr(torch.neuron, name)


@pytest.mark.parametrize("name", TORCH_NEURONX)
def test_torch_neuronx_has(name: str) -> None:
    assert hasattr(torch_neuronx, name)


def test_the_face_shows_the_same_objects() -> None:
    for name in set(torch_neuronx.__all__) & set(neuron_emu.device.__all__):
        assert getattr(torch_neuronx, name) is getattr(torch.neuron, name)


@pytest.mark.parametrize("package", ["torch_neuronx", "neuron_emu/device"])
def test_all_names_what_a_module_imports(package: str) -> None:
    tree = ast.parse((ROOT / package / "__init__.py").read_text())
    imported = {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("neuron_emu.")
        for alias in node.names
    }
    module = torch_neuronx if package == "torch_neuronx" else neuron_emu.device
    assert set(module.__all__) <= imported | {"amp", "memory", "random", "streams"}
    for name in module.__all__:
        assert hasattr(module, name)


def test_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match=r"torch\.neuron.*no_such_name"):
        torch.neuron.no_such_name  # noqa: B018
    with pytest.raises(AttributeError, match="torch_neuronx.*no_such_name"):
        torch_neuronx.no_such_name  # noqa: B018


def test_op_tracking() -> None:
    torch_neuronx.clear_op_tracking()
    x = torch.arange(4.0, device="neuron")
    (x * 2).nonzero()
    torch.neuron.synchronize()
    assert "aten::mul.Tensor" in torch_neuronx.get_executed_ops()
    assert "aten::nonzero" in torch_neuronx.get_fallback_ops()
    assert "aten::mul.Tensor" not in torch_neuronx.get_fallback_ops()
    torch_neuronx.clear_op_tracking()
    assert torch_neuronx.get_executed_ops() == torch_neuronx.get_fallback_ops() == []
