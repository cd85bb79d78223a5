"""Saving, loading, copying and pickling: devices, views and sharing survive."""

from __future__ import annotations

import copy
import io
import pickle
from collections import OrderedDict
from pathlib import Path

import pytest
import torch
from scripts import run_script
from torch import nn


def saved(value: object) -> io.BytesIO:
    file = io.BytesIO()
    torch.save(value, file)
    file.seek(0)
    return file


def test_save_and_load_keep_the_device() -> None:
    for device in ("neuron:0", "neuron:1"):
        tensor = torch.arange(6.0, device=device).view(2, 3)
        loaded = torch.load(saved(tensor))
        assert loaded.device == torch.device(device)
        assert torch.equal(loaded, tensor)


TARGETS = {
    "cpu": ("cpu", "cpu"),
    "neuron": ("neuron", "neuron:0"),
    "neuron:1": ("neuron:1", "neuron:1"),
    "device": (torch.device("neuron", 1), "neuron:1"),
    "dict": ({"neuron:2": "neuron:1"}, "neuron:1"),
    "dict_to_cpu": ({"neuron:2": "cpu"}, "cpu"),
    "callable": (lambda storage, location: storage, "cpu"),
    "callable_moving": (lambda storage, location: storage.neuron(1) if location == "neuron:2" else storage, "neuron:1"),
}


@pytest.mark.parametrize(("location", "expected"), TARGETS.values(), ids=TARGETS.keys())
def test_map_location(location: object, expected: str) -> None:
    """Field case 50."""
    tensor = torch.arange(6.0, device="neuron:2").view(2, 3)
    loaded = torch.load(saved({"tensor": tensor, "view": tensor[1]}), map_location=location)
    assert loaded["tensor"].device == torch.device(expected)
    assert loaded["tensor"].tolist() == tensor.tolist()
    assert loaded["view"].untyped_storage().data_ptr() == loaded["tensor"].untyped_storage().data_ptr()


def test_map_location_from_the_cpu() -> None:
    tensor = torch.arange(6.0)
    assert torch.load(saved(tensor), map_location="neuron:1").device == torch.device("neuron:1")
    with torch.neuron.device(2):
        assert torch.load(saved(tensor), map_location="neuron").device.index == 2


def test_weights_only_and_mmap(tmp_path: Path) -> None:
    module = nn.Linear(4, 2).to("neuron")
    path = tmp_path / "weights.pt"
    torch.save(module.state_dict(), path)
    for options in (
        {"weights_only": True},
        {"mmap": True, "map_location": "cpu"},
        {"mmap": True, "map_location": "neuron"},
    ):
        loaded = torch.load(path, **options)
        assert isinstance(loaded, OrderedDict)
        assert torch.equal(loaded["weight"].cpu(), module.weight.detach().cpu())


def test_saving_sees_queued_work() -> None:
    tensor = torch.zeros(1 << 18, device="neuron")
    for _ in range(100):
        tensor.add_(1)
    assert torch.load(saved(tensor), map_location="cpu").eq(100).all()


def test_a_device_that_this_machine_lacks() -> None:
    """A file of neuron:5 on a machine with two cores: an error that says what to do."""
    file = saved(torch.ones(2, device="neuron:5")).getvalue().hex()
    out = run_script(
        f"""
    import io
    data = bytes.fromhex("{file}")
    try:
        torch.load(io.BytesIO(data))
    except RuntimeError as error:
        print("map_location" in str(error), "5" in str(error), "neuron" in str(error))
    print(torch.load(io.BytesIO(data), map_location="neuron:1").device)
    print(torch.load(io.BytesIO(data), map_location="cpu").tolist())
    """,
        {"NEURON_RT_NUM_CORES": "2"},
    )
    assert out.splitlines() == ["True True True", "neuron:1", "[1.0, 1.0]"]


def test_a_file_of_one_rank_loaded_by_another(tmp_path: Path) -> None:
    """Saved by the worker of neuron:1, loaded by the worker of neuron:0 in each way."""
    path = tmp_path / "rank1.pt"
    run_script(
        f"torch.save({{'w': torch.arange(4., device='neuron')}}, {str(path)!r})",
        {"LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"},
    )
    out = run_script(
        f"""
    for location in ("cpu", "neuron", "neuron:0", torch.device("neuron"), {{"neuron:1": "neuron:0"}},
                     lambda storage, location: storage.neuron()):
        loaded = torch.load({str(path)!r}, map_location=location)["w"]
        assert loaded.tolist() == [0, 1, 2, 3]
        print(loaded.device)
    print(torch.load({str(path)!r})["w"].device)  # a worker has one device: what its fellow had goes there
    """,
        {"LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "2"},
    )
    assert out.split() == ["cpu", *["neuron:0"] * 6]


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(7, 4)
        self.head = nn.Linear(4, 7, bias=False)
        self.head.weight = self.embedding.weight
        self.register_buffer("scale", torch.tensor(2.0))

    def forward(self, index: torch.Tensor) -> torch.Tensor:
        return self.head(self.embedding(index)) * self.scale


def test_moving_keeps_tied_weights() -> None:
    module = Tied()
    weight = module.embedding.weight
    module.to("neuron")
    assert module.head.weight is module.embedding.weight is weight
    assert weight.device.type == "neuron"
    assert sum(1 for _ in module.parameters()) == 1
    module.cpu()
    assert module.head.weight is module.embedding.weight is weight


def test_deepcopy_keeps_tied_weights() -> None:
    module = Tied().to("neuron")
    index = torch.arange(3, device="neuron")
    twin = copy.deepcopy(module)
    assert twin.head.weight is twin.embedding.weight
    assert twin.head.weight is not module.head.weight
    assert twin.head.weight.data_ptr() != module.head.weight.data_ptr()
    assert twin.scale.device.type == "neuron"
    assert torch.equal(twin(index), module(index))
    twin.head.weight.data.zero_()
    assert module.head.weight.abs().sum().item() > 0


def test_pickle_keeps_tied_weights() -> None:
    module = Tied().to("neuron:1")
    twin = pickle.loads(pickle.dumps(module))
    assert twin.head.weight is twin.embedding.weight
    assert twin.head.weight.device == torch.device("neuron:1")
    assert torch.equal(twin.head.weight, module.head.weight)


def test_deepcopy_of_tensors_keeps_views_and_sharing() -> None:
    base = torch.arange(12.0, device="neuron").view(3, 4)
    column, twice = copy.deepcopy([base[:, 1], base])
    assert column.untyped_storage().data_ptr() == twice.untyped_storage().data_ptr()
    assert column.stride() == (4,)
    twice.zero_()
    assert column.tolist() == [0, 0, 0]
    assert base[1, 1].item() == 5
    leaf = torch.ones(3, device="neuron", requires_grad=True)
    leaf.sum().backward()
    twin = copy.deepcopy(leaf)
    assert twin.requires_grad
    assert twin.grad.tolist() == [1, 1, 1]
    assert twin.grad.data_ptr() != leaf.grad.data_ptr()
    shallow = copy.copy(base)
    assert shallow.data_ptr() == base.data_ptr()


def test_pickle_of_tensors_keeps_views_and_sharing() -> None:
    base = torch.arange(12.0, device="neuron").view(3, 4)
    again = torch.load(saved([base.t(), base[1:], base.half(), torch.empty(0, device="neuron")]))
    assert again[0].stride() == (1, 4)
    assert again[0].untyped_storage().data_ptr() == again[1].untyped_storage().data_ptr()
    assert again[1].storage_offset() == 4
    assert again[2].dtype == torch.float16
    assert again[3].device.type == "neuron"
    one = pickle.loads(pickle.dumps(base))
    assert one.device == base.device
    assert torch.equal(one, base)
    parameter = pickle.loads(pickle.dumps(nn.Parameter(base)))
    assert isinstance(parameter, nn.Parameter)
    complex_ = torch.load(saved(torch.complex(base, base).conj()))
    assert torch.equal(complex_.cpu(), torch.complex(base, -base).cpu())


def test_optimizer_state(tmp_path: Path) -> None:
    module = nn.Linear(4, 2).to("neuron")
    optimizer = torch.optim.Adam(module.parameters())
    module(torch.ones(3, 4, device="neuron")).sum().backward()
    optimizer.step()
    torch.save({"model": module.state_dict(), "optimizer": optimizer.state_dict()}, tmp_path / "checkpoint.pt")
    twin = nn.Linear(4, 2).to("neuron")
    second = torch.optim.Adam(twin.parameters())
    checkpoint = torch.load(tmp_path / "checkpoint.pt", map_location="cpu")
    twin.load_state_dict(checkpoint["model"])
    second.load_state_dict(checkpoint["optimizer"])
    state = second.state[twin.weight]
    assert state["exp_avg"].device.type == "neuron"
    for step in range(2):
        for one, other in ((module, optimizer), (twin, second)):
            other.zero_grad()
            one(torch.ones(3, 4, device="neuron") * (step + 2)).sum().backward()
            other.step()
    assert torch.equal(module.weight, twin.weight)


def test_generator_state_in_a_checkpoint() -> None:
    torch.neuron.manual_seed(3)
    torch.rand(5, device="neuron")
    state = torch.load(saved(torch.neuron.get_rng_state()))
    expected = torch.rand(5, device="neuron")
    torch.neuron.set_rng_state(state)
    assert torch.equal(torch.rand(5, device="neuron"), expected)


def test_state_dict_with_the_assign_option() -> None:
    module = nn.Linear(3, 3)
    state = {name: tensor.to("neuron") for name, tensor in nn.Linear(3, 3).state_dict().items()}
    module.load_state_dict(state, assign=True)
    assert module.weight.device.type == "neuron"
    assert module.weight.data_ptr() == state["weight"].data_ptr()
