"""Rank side of test_dtensor.py: DTensors on `neuron`, against those on CPU + gloo in the same processes or against the
plain operator on the CPU.
"""

from __future__ import annotations

import functools
import io
import itertools
from collections.abc import Callable, Sequence

import torch
import torch.distributed as dist
import torch.nn.functional as F
from dtensor_operators import OPERATORS, operator_fault, run_operator
from reference import fails_with, values
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import (
    DTensor,
    Partial,
    Placement,
    Replicate,
    Shard,
    distribute_module,
    distribute_tensor,
)
from torch.distributed.tensor import empty as dtensor_empty
from torch.distributed.tensor import full as dtensor_full
from torch.distributed.tensor import ones as dtensor_ones
from torch.distributed.tensor import rand as dtensor_rand
from torch.distributed.tensor import randn as dtensor_randn
from torch.distributed.tensor import zeros as dtensor_zeros
from torch.distributed.tensor.debug import CommDebugMode
from torch.distributed.tensor.experimental import local_map
from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module

import torch_neuronx  # noqa: F401

BACKEND = "cpu:gloo,neuron:neuron"

Placements = Sequence[Placement]
SUMMED = Partial("sum")


@functools.cache
def mesh_of(device: str, *shape: int) -> DeviceMesh:
    return init_device_mesh(device, shape)


def assert_same(actual: torch.Tensor, expected: torch.Tensor, what: object, **tolerance: float) -> None:
    torch.testing.assert_close(
        actual.cpu(), expected.cpu(), msg=lambda text: f"{what}: {text}", **(tolerance or {"rtol": 0, "atol": 0})
    )


# --- redistribution ---


def local_part(mesh: DeviceMesh, shape: tuple[int, ...], placements: Placements, dtype: torch.dtype) -> torch.Tensor:
    """What this rank holds of a DTensor: small integers, so that every sum and mean over ranks is exact."""
    place = [mesh.get_local_rank(dim) if isinstance(p, Partial) else 0 for dim, p in enumerate(placements)]
    salt = sum(coordinate * 3**dim for dim, coordinate in enumerate(place))
    part = ((torch.arange(torch.Size(shape).numel()) * 7 + salt * 5) % 11 * 4).reshape(shape).to(dtype)
    for dim, p in enumerate(placements):
        if isinstance(p, Shard):
            part = p._split_tensor(part, mesh.size(dim), with_padding=False)[0][mesh.get_local_rank(dim)]
    return part


def redistributed(
    device: str,
    mesh_shape: Sequence[int],
    shape: tuple[int, ...],
    dtype: torch.dtype,
    source: Placements,
    to: Placements,
) -> torch.Tensor | str:
    """The local tensor after it; or the error."""
    mesh = mesh_of(device, *mesh_shape)
    stride = torch.empty(shape, device="meta").stride()
    local = local_part(mesh, shape, source, dtype).to(device)
    whole = DTensor.from_local(local, mesh, source, run_check=False, shape=torch.Size(shape), stride=stride)
    try:
        return whole.redistribute(placements=to).to_local()
    except (RuntimeError, ValueError, NotImplementedError, AssertionError) as error:
        return type(error).__name__


def compare_redistributions(
    mesh_shape: Sequence[int], shapes: Sequence[tuple[int, ...]], dtypes: Sequence[torch.dtype], kinds: Placements
) -> None:
    sources = list(itertools.product(kinds, repeat=len(mesh_shape)))
    # A user may not ask for Partial: one of its kinds shows that.
    targets = list(itertools.product([Replicate(), Shard(0), Shard(1), SUMMED], repeat=len(mesh_shape)))
    works = 0
    for shape, dtype, source, to in itertools.product(shapes, dtypes, sources, targets):
        case = (tuple(mesh_shape), shape, dtype, source, to)
        expected = redistributed("cpu", mesh_shape, shape, dtype, source, to)
        actual = redistributed("neuron", mesh_shape, shape, dtype, source, to)
        if isinstance(expected, str):
            assert actual == expected, f"{case}: {expected} on the CPU, {actual} here"
        else:
            assert not isinstance(actual, str), f"{case}: {actual}"
            assert_same(actual, expected, case)
            works += 1
    without_partial = 3 ** len(mesh_shape)
    assert works >= len(shapes) * len(dtypes) * len(sources) * without_partial


def check_every_redistribution(rank: int, world_size: int) -> None:
    """Even, uneven, with ranks that get nothing, and empty."""
    kinds = [Replicate(), Shard(0), Shard(1), SUMMED, Partial("avg"), Partial("max"), Partial("min")]
    shapes = [(8, 4), (5, 7), (1, 3), (0, 4)]
    compare_redistributions([world_size], shapes, [torch.float32, torch.bfloat16], kinds)
    compare_redistributions([world_size], [(5, 7)], [torch.int64, torch.float64], [Replicate(), Shard(0), SUMMED])


def check_redistribution_over_two_dimensions(rank: int, world_size: int) -> None:
    for mesh_shape in {(world_size // 2, 2), (2, world_size // 2)}:
        kinds = [Replicate(), Shard(0), Shard(1), SUMMED]
        compare_redistributions(mesh_shape, [(5, 7)], [torch.float32], kinds)


def check_gradient_of_a_redistribution(rank: int, world_size: int) -> None:
    for source, to in itertools.product([Replicate(), Shard(0), Shard(1), SUMMED], [Replicate(), Shard(0), Shard(1)]):
        gradients = []
        for device in ("cpu", "neuron"):
            mesh = mesh_of(device, world_size)
            local = local_part(mesh, (5, 7), [source], torch.float32).to(device).requires_grad_()
            whole = DTensor.from_local(local, mesh, [source], run_check=False, shape=torch.Size((5, 7)), stride=(7, 1))
            result = whole.redistribute(placements=[to]).to_local()
            result.backward(torch.full_like(result, 3.0))
            gradients.append(local.grad)
        assert_same(gradients[1], gradients[0], (source, to))


def check_asynchronous_redistribution(rank: int, world_size: int) -> None:
    mesh = mesh_of("neuron", world_size)
    given = values(0, (6, 5), torch.float32)
    parts = distribute_tensor(given.to("neuron"), mesh, [Shard(0)])
    gathered = [parts.redistribute(placements=[Replicate()], async_op=True).to_local() for _ in range(3)]
    assert_same(gathered[0] + gathered[1] + gathered[2], 3 * given, "async_op")


# --- operators ---


def check_operators(rank: int, world_size: int) -> None:
    """Forward and backward, the inputs replicated or sharded along each dimension. Not all of DTensor's rules take
    uneven shards: what it refuses or gets wrong on the CPU, too, is not this device's.
    """
    on_device, on_cpu = mesh_of("neuron", world_size), mesh_of("cpu", world_size)
    generator = torch.Generator().manual_seed(0)
    tried, ours, theirs = 0, [], 0
    for name, (function, shapes) in OPERATORS.items():
        given = [torch.randn(shape, generator=generator) for shape in shapes]
        expected = run_operator(function, [t.clone().requires_grad_() for t in given])
        for first in [Replicate(), *map(Shard, range(len(shapes[0])))]:
            for others in [Replicate()] if len(shapes) == 1 else [Replicate(), first]:
                tried += 1
                fault = operator_fault(name, on_device, first, others, given, expected)
                if fault is None:
                    continue
                # For attention there is no rule on the CPU.
                if name != "attention" and operator_fault(name, on_cpu, first, others, given, expected) is not None:
                    theirs += 1
                else:
                    ours.append(fault)
    assert not ours, "\n".join(ours)
    assert theirs < tried / 8, f"{theirs} of {tried}"


def check_attention_beside_training(rank: int, world_size: int) -> None:
    """Masks, no gradients; grouped heads up to their gradients, for which DTensor has no rule."""
    mesh = mesh_of("neuron", world_size)
    generator = torch.Generator().manual_seed(0)
    plain = [torch.randn(2, heads, 6, 8, generator=generator) for heads in (8, 8, 8, 4, 4)]
    q, k, v, few_k, few_v = (distribute_tensor(t.to("neuron"), mesh, [Shard(1)]) for t in plain)
    attention = F.scaled_dot_product_attention
    mask = torch.randn(6, 6, generator=generator)
    for given in (mask, mask > 0):
        whole = distribute_tensor(given.to("neuron"), mesh, [Replicate()])
        expected = attention(*plain[:3], attn_mask=given)
        assert_same(attention(q, k, v, attn_mask=whole).full_tensor(), expected, given.dtype, rtol=1e-5, atol=1e-6)
    expected = attention(*plain[:3])
    with torch.no_grad():
        assert_same(attention(q, k, v).full_tensor(), expected, "no_grad", rtol=1e-5, atol=1e-6)
    expected = attention(plain[0], *plain[3:], enable_gqa=True)
    grouped = attention(q, few_k, few_v, enable_gqa=True)
    assert_same(grouped.full_tensor(), expected, "grouped heads", rtol=1e-5, atol=1e-6)
    few_k.requires_grad_()
    fails_with(NotImplementedError, "grouped heads", lambda: attention(q, few_k, few_v, enable_gqa=True))


def check_embedding_and_cross_entropy(rank: int, world_size: int) -> None:
    """Rows of the table and classes sharded: masks on each rank, then a reduction."""
    table = torch.randn(13, 8, generator=torch.Generator().manual_seed(0))
    tokens = torch.randint(0, 13, (4, 6), generator=torch.Generator().manual_seed(1))
    plain = table.clone().requires_grad_()
    expected = F.cross_entropy(F.embedding(tokens, plain).flatten(0, 1), tokens.flatten() % 8)
    expected.backward()
    for device in ("neuron", "cpu"):
        mesh = mesh_of(device, world_size)
        for place in (Replicate(), Shard(0), Shard(1)):
            weights = distribute_tensor(table.to(device), mesh, [place]).requires_grad_()
            ids = distribute_tensor(tokens.to(device), mesh, [Replicate()])
            rows = F.embedding(ids, weights).redistribute(placements=[Replicate()])
            loss = F.cross_entropy(rows.flatten(0, 1), ids.flatten() % 8)
            loss.backward()
            assert_same(loss.full_tensor(), expected.detach(), (device, place), rtol=1e-5, atol=1e-6)
            assert_same(weights.grad.full_tensor(), plain.grad, (device, place), rtol=1e-5, atol=1e-6)


# --- random numbers ---


def random_tensor(mesh: DeviceMesh, place: Placement, make: Callable[..., DTensor], seed: int = 7) -> DTensor:
    torch.manual_seed(seed)
    return make(13, 6, device_mesh=mesh, placements=[place])


def check_random_tensors(rank: int, world_size: int) -> None:
    """Replicas are equal, shards differ, the seed decides, and every rank's generator ends in the same state."""
    mesh = mesh_of("neuron", world_size)
    for make in (dtensor_rand, dtensor_randn):
        replica = random_tensor(mesh, Replicate(), make)
        state = torch.neuron.get_rng_state()
        everyone = torch.stack([t.cpu() for t in gathered(replica.to_local())])
        assert bool((everyone == everyone[0]).all()), "replicas differ"
        sharded = random_tensor(mesh, Shard(0), make)
        assert torch.equal(torch.neuron.get_rng_state(), state)
        states = torch.stack([t.cpu() for t in gathered(state.to("neuron"))])
        assert bool((states == states[0]).all()), "the ranks' generators are out of step"
        numbers = sharded.full_tensor().cpu().flatten()
        assert len(set(numbers.tolist())) > 70, "shards repeat each other's numbers"
        assert torch.equal(random_tensor(mesh, Shard(0), make).full_tensor().cpu().flatten(), numbers)
        assert not torch.equal(random_tensor(mesh, Shard(0), make, seed=8).full_tensor().cpu().flatten(), numbers)


def gathered(tensor: torch.Tensor) -> list[torch.Tensor]:
    parts = [torch.empty_like(tensor) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, tensor.contiguous())
    return parts


# Of what draws numbers, these are the operators that DTensor in torch 2.13 gives each shard its own numbers for.
FILLS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "kaiming_uniform_": nn.init.kaiming_uniform_,
    "normal_": lambda t: nn.init.normal_(t, mean=1.5, std=0.8),
    "trunc_normal_": nn.init.trunc_normal_,
    "uniform_": lambda t: nn.init.uniform_(t, 0, 1.2),
    "rand_like": torch.rand_like,
    "randn_like": lambda t: torch.randn_like(t, dtype=torch.float16),
    "randint_like": lambda t: torch.randint_like(t, 0, 1000),
    "bernoulli_": lambda t: t.bernoulli_(0.5),
}


def check_random_operators(rank: int, world_size: int) -> None:
    """On meshes of two dimensions: equal where replicated, no two shards alike."""
    mesh = mesh_of("neuron", world_size // 2, 2)
    for placements in itertools.product([Replicate(), Shard(0), Shard(1)], repeat=2):
        torch.manual_seed(11)
        empty = dtensor_empty(8, 12, device_mesh=mesh, placements=placements)
        for name, fill in FILLS.items():
            made = fill(empty)
            assert made.placements == placements, name
            everyone = [t.cpu() for t in gathered(made.full_tensor())]
            assert all(torch.equal(t, everyone[0]) for t in everyone), f"{name} {placements}: replicas differ"
            blocks = [everyone[0]]
            for dim, place in enumerate(placements):
                if isinstance(place, Shard):
                    blocks = [part for block in blocks for part in block.chunk(mesh.size(dim), place.dim)]
            pairs = itertools.combinations(blocks, 2)
            assert not any(torch.equal(a, b) for a, b in pairs), f"{name} {placements}: shards repeat each other"


def check_generator_of_the_user(rank: int, world_size: int) -> None:
    """It gives what the default one gives from the same seed, and moves on."""
    mesh = mesh_of("neuron", world_size)
    torch.manual_seed(42)
    generator = torch.Generator(device="neuron").manual_seed(42)
    first, second = (dtensor_empty(8, 3, device_mesh=mesh, placements=[Shard(0)]) for _ in range(2))
    seen = []
    for _ in range(2):
        nn.init.uniform_(first)
        nn.init.uniform_(second, generator=generator)
        seen.append(first.full_tensor().cpu())
        assert torch.equal(second.full_tensor().cpu(), seen[-1])
    assert not torch.equal(*seen)


def check_sampling(rank: int, world_size: int) -> None:
    mesh = mesh_of("neuron", world_size)
    odds = torch.tensor([[0.0, 0.5, 0.0, 0.5]] * 8, device="neuron")
    for place in (Shard(0), Replicate()):
        drawn = torch.multinomial(distribute_tensor(odds, mesh, [place]), 64, replacement=True)
        assert drawn.placements == (place,) and set(drawn.full_tensor().unique().tolist()) == {1, 3}


def check_initialization_of_a_model_on_meta(rank: int, world_size: int) -> None:
    """Split, then sharded, then made: as big models start. The same for any mesh, up to the order of the numbers."""
    mesh = init_device_mesh("neuron", (world_size // 2, 2), mesh_dim_names=("dp", "tp"))
    with torch.device("meta"):
        model = nn.Linear(64, 48, bias=False)
    parallelize_module(model, mesh["tp"], ColwiseParallel())
    fully_shard(model, mesh=mesh["dp"])
    model.to_empty(device="neuron")
    torch.manual_seed(5)
    model.reset_parameters()
    everyone = [t.cpu() for t in gathered(model.weight.full_tensor())]
    assert all(torch.equal(t, everyone[0]) for t in everyone)
    bound = 1 / 8
    assert -bound <= everyone[0].min().item() < -0.9 * bound and 0.9 * bound < everyone[0].max().item() <= bound
    assert len(everyone[0].unique()) > 3000, "shards repeat each other's numbers"


def check_dropout(rank: int, world_size: int) -> None:
    """A replicated activation loses the same elements on every rank, a sharded one others in each shard; the gradient
    is lost where the value is.
    """
    mesh = mesh_of("neuron", world_size)
    torch.manual_seed(3)
    for place in (Replicate(), Shard(0)):
        x = distribute_tensor(torch.ones(16, 32, device="neuron"), mesh, [place]).requires_grad_()
        y = F.dropout(x, 0.5)
        y.sum().backward()
        assert torch.equal(x.grad.full_tensor(), y.full_tensor())
        kept = gathered(y.to_local())
        assert 0.35 < y.full_tensor().cpu().ne(0).float().mean().item() < 0.65
        assert torch.equal(kept[0].cpu(), kept[-1].cpu()) == isinstance(place, Replicate)


# --- the rest ---


def check_factories(rank: int, world_size: int) -> None:
    mesh = mesh_of("neuron", world_size)
    for place in (Replicate(), Shard(0), Shard(1)):
        for made, value in (
            (dtensor_zeros(5, 7, device_mesh=mesh, placements=[place]), 0),
            (dtensor_ones(5, 7, device_mesh=mesh, placements=[place]), 1),
            (dtensor_full((5, 7), 2.5, device_mesh=mesh, placements=[place]), 2.5),
        ):
            assert made.device == torch.device("neuron", rank) and made.to_local().device == made.device
            assert_same(made.full_tensor(), torch.full((5, 7), float(value)), place)
        shard = distribute_tensor(torch.arange(35.0).view(5, 7).to("neuron"), mesh, [place])
        assert_same(torch.zeros_like(shard).full_tensor(), torch.zeros(5, 7), place)
        assert_same(shard.to(torch.bfloat16).float().full_tensor(), torch.arange(35.0).view(5, 7), place)


def check_distribution_takes_the_first_rank_s_values(rank: int, world_size: int) -> None:
    mesh = mesh_of("neuron", world_size)
    mine = torch.full((5, 3), float(rank), device="neuron")
    for place in (Replicate(), Shard(0), Shard(1)):
        assert_same(distribute_tensor(mine, mesh, [place]).full_tensor(), torch.zeros(5, 3), place)
    own = distribute_tensor(mine, mesh, [Replicate()], src_data_rank=None)
    assert_same(own.to_local(), mine, "src_data_rank=None")


def check_collectives_are_counted(rank: int, world_size: int) -> None:
    mesh = mesh_of("neuron", world_size)
    functional = torch.ops.c10d_functional
    for source, to, operator in (
        (Shard(0), Replicate(), functional.all_gather_into_tensor),
        (SUMMED, Replicate(), functional.all_reduce),
        (SUMMED, Shard(0), functional.reduce_scatter_tensor),
    ):
        whole = DTensor.from_local(torch.ones(4, 4, device="neuron"), mesh, [source], run_check=False)
        with CommDebugMode() as counted:
            whole.redistribute(placements=[to])
        assert dict(counted.get_comm_counts()) == {operator: 1}


def check_local_map(rank: int, world_size: int) -> None:
    mesh = mesh_of("neuron", world_size)
    given = torch.randn(8, 6, generator=torch.Generator().manual_seed(0))
    x = distribute_tensor(given.to("neuron"), mesh, [Shard(1)])
    y = distribute_tensor(given.t().contiguous().to("neuron"), mesh, [Shard(0)])
    multiply = local_map(torch.mm, out_placements=[SUMMED], in_placements=([Shard(1)], [Shard(0)]), device_mesh=mesh)
    assert_same(multiply(x, y).full_tensor(), given @ given.t(), "local_map", rtol=1e-4, atol=1e-4)


def check_distributed_module(rank: int, world_size: int) -> None:
    """Inputs are sharded along the batch, outputs gathered; the parameters are replicated, from the first rank."""
    mesh = mesh_of("neuron", world_size)
    torch.manual_seed(rank)
    module = nn.Linear(6, 3)
    whole = distribute_module(
        module.to("neuron"),
        mesh,
        input_fn=lambda _, inputs, mesh: (distribute_tensor(inputs[0], mesh, [Shard(0)]),),
        output_fn=lambda _, outputs, mesh: outputs.full_tensor(),
    )
    torch.manual_seed(0)
    reference = nn.Linear(6, 3)
    x = torch.randn(7, 6, generator=torch.Generator().manual_seed(5))
    assert_same(whole(x.to("neuron")).detach(), reference(x).detach(), "output", rtol=1e-5, atol=1e-6)


def check_saved_and_loaded(rank: int, world_size: int) -> None:
    mesh = mesh_of("neuron", world_size)
    given = torch.arange(35.0).view(5, 7)
    file = io.BytesIO()
    torch.save({"w": distribute_tensor(given.to("neuron"), mesh, [Shard(0)])}, file)
    file.seek(0)
    loaded = torch.load(file, weights_only=False)["w"]
    assert loaded.placements == (Shard(0),) and loaded.device_mesh == mesh
    assert_same(loaded.full_tensor(), given, "loaded")


def check_optimizers(rank: int, world_size: int) -> None:
    """Every optimizer and clip_grad_norm_ over parameters of different placements, uneven and on two meshes' shapes."""
    shapes = [(7, 5), (5,), (3, 6), (1, 9)]
    places = [Shard(0), Replicate(), Shard(1), Shard(0)]
    generator = torch.Generator().manual_seed(0)
    start = [torch.randn(shape, generator=generator) for shape in shapes]
    steps = [[torch.randn(shape, generator=generator) for shape in shapes] for _ in range(3)]
    mesh = mesh_of("neuron", world_size)

    def place(tensors: list[torch.Tensor]) -> list[DTensor]:
        return [distribute_tensor(t.to("neuron"), mesh, [p]) for t, p in zip(tensors, places, strict=True)]

    for kind, options in (
        (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9}),
        (torch.optim.AdamW, {"lr": 0.1}),
        (torch.optim.AdamW, {"lr": 0.1, "foreach": False}),
        (torch.optim.Adagrad, {"lr": 0.1}),
    ):
        results = []
        for given, spread in ((start, lambda tensors: [t.clone() for t in tensors]), (start, place)):
            parameters = [nn.Parameter(t) for t in spread(given)]
            optimizer = kind(parameters, **options)
            norms = []
            for gradients in steps:
                for parameter, gradient in zip(parameters, spread(gradients), strict=True):
                    parameter.grad = gradient
                norm = nn.utils.clip_grad_norm_(parameters, 1.0)
                norms.append(norm.full_tensor() if isinstance(norm, DTensor) else norm)
                optimizer.step()
            results.append([p.full_tensor() if isinstance(p, DTensor) else p for p in [*parameters, *norms]])
        for expected, actual in zip(*results, strict=True):
            assert_same(actual.detach(), expected.detach(), (kind, options), rtol=1e-5, atol=1e-6)


def check_meshes(rank: int, world_size: int) -> None:
    """Three dimensions, slices, ranks and groups of each; the groups work, and slices are the same ones."""
    mesh = init_device_mesh("neuron", (2, world_size // 2, 1), mesh_dim_names=("a", "b", "c"))
    place = mesh.get_coordinate()
    assert [place[0] * (world_size // 2) + place[1], place[2]] == [rank, 0]
    expected = {
        "a": [place[1], place[1] + world_size // 2],
        "b": [place[0] * (world_size // 2) + b for b in range(world_size // 2)],
        "c": [rank],
    }
    for name, ranks in expected.items():
        group = mesh.get_group(name)
        assert dist.get_process_group_ranks(group) == ranks == mesh[name].mesh.tolist()
        assert mesh[name].get_group() is group
        total = torch.tensor([rank], device="neuron")
        dist.all_reduce(total, group=group)
        assert total.item() == sum(ranks), name
    assert mesh["a", "b"].mesh.shape == (2, world_size // 2)
    flat = mesh["a", "b"]._flatten("ab")
    assert flat.size() == world_size and mesh["ab"] == flat
    assert_same(
        distribute_tensor(torch.arange(7.0, device="neuron"), flat, [Shard(0)]).full_tensor(), torch.arange(7.0), "flat"
    )
