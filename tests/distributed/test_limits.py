"""The documented limits of torch.distributed: each raises, warns once, or is lifted, as NEURON_EMU_LIMITS says."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch  # noqa: F401  (the table of rules is in the extension, which needs it)
from launch import run_ranks

from neuron_emu.rules import check, rules

PRELUDE = """
import contextlib, datetime, os, warnings
import torch, torch.distributed as dist
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
limits = os.environ.get("NEURON_EMU_LIMITS", "documented")

@contextlib.contextmanager
def documented(kind, rule, words):
    # Raises in documented and strict, not in extended.
    try:
        yield
    except kind as error:
        assert limits != "extended" and rule in str(error) and words in str(error), (limits, error)
        assert "NEURON_EMU_LIMITS=extended" in str(error)
    else:
        assert limits == "extended", f"{rule} did not raise"

def unconfirmed(rule, call, kind=Exception):
    # Warns once in documented, raises in strict, says nothing in extended.
    for turn in range(2):
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            try:
                call()
            except kind as error:
                assert limits == "strict" and rule in str(error), (limits, error)
                continue
        assert limits != "strict", f"{rule} did not raise"
        mine = [w for w in told if rule in str(w.message)]
        expected = 1 if limits == "documented" and turn == 0 else 0
        assert len(mine) == expected, (rule, turn, [str(w.message) for w in told])
"""

LIMITS = pytest.mark.parametrize("limits", ["documented", "strict", "extended"])


@LIMITS
def test_documented_limits(limits: str) -> None:
    script = (
        PRELUDE
        + """
dist.init_process_group("neuron")
dist.barrier()
pair = dist.new_group([0, 1])
if rank < 2:
    with documented(NotImplementedError, "subgroup-barrier", "requires a group the size of the default world"):
        dist.barrier(group=pair)
everyone = dist.new_group([0, 1, 2, 3])
dist.barrier(group=everyone)
backend = dist.group.WORLD._get_backend(torch.device("neuron"))
with documented(NotImplementedError, "set-timeout", "does not implement runtime timeout updates"):
    backend.set_timeout(datetime.timedelta(seconds=7))
dist.barrier()
dist.destroy_process_group()
"""
    )
    run_ranks(script, 4, env={"NEURON_EMU_LIMITS": limits}).check()


@LIMITS
def test_hostcc_all_to_all(limits: str) -> None:
    script = (
        PRELUDE
        + """
dist.init_process_group("neuron")
source, target = torch.arange(2.0, device="neuron") + rank, torch.zeros(2, device="neuron")
torch.neuron.synchronize()
with torch.neuron.stream(torch.neuron.Stream()):
    with documented(NotImplementedError, "hostcc-all-to-all", "rather than automatically falling back"):
        dist.all_to_all_single(target, source)
        assert target.tolist() == [float(rank), rank + 1.0]
    unconfirmed("hostcc-other-collectives", lambda: dist.broadcast(source, src=0))
dist.all_to_all_single(target, source)
torch.neuron.synchronize()
dist.destroy_process_group()
"""
    )
    run_ranks(script, 2, env={"NEURON_EMU_LIMITS": limits, "TORCH_NEURONX_ENABLE_HOST_CC": "1"}).check()


@LIMITS
@pytest.mark.parametrize(
    ("variable", "value", "rule"),
    [
        ("TORCH_NEURONX_ENABLE_STREAMS", "0", "hostcc-needs-streams"),
        ("NKI_DMA_TRANSPOSE_AS_PE_TRANSPOSE", "false", "hostcc-pe-transpose"),
    ],
)
def test_hostcc_environment(limits: str, variable: str, value: str, rule: str) -> None:
    script = (
        PRELUDE
        + f"""
with documented(RuntimeError, "{rule}", "{variable}"):
    dist.init_process_group("neuron")
    dist.all_reduce(torch.ones(1, device="neuron"))
    dist.destroy_process_group()
"""
    )
    env = {"NEURON_EMU_LIMITS": limits, "TORCH_NEURONX_ENABLE_HOST_CC": "1", variable: value}
    run_ranks(script, 1, env=env).check()


@LIMITS
def test_unconfirmed_limits_warn_once(limits: str) -> None:
    script = (
        PRELUDE
        + """
dist.init_process_group("neuron")
def tensor(*sizes, dtype=torch.float32):
    return torch.ones(*sizes, device="neuron", dtype=dtype)

unconfirmed("reduce-operator", lambda: dist.all_reduce(tensor(2), op=dist.ReduceOp.PRODUCT))
unconfirmed("empty-tensors", lambda: dist.all_reduce(tensor(0)))
unconfirmed("uneven-splits", lambda: dist.all_gather([tensor(r + 1) for r in range(world)], tensor(rank + 1)))
if limits != "strict":
    dist.all_to_all_single(tensor(2 * world), tensor(2 * world))
if rank in (1, 2):
    unconfirmed("unaligned-subgroup", lambda: dist.new_group([1, 2]))
else:
    dist.new_group([1, 2]), dist.new_group([1, 2])
for aligned in ([0, 1], [2, 3], [0, 2], [1, 3]):
    dist.new_group(aligned)
dist.barrier()
dist.destroy_process_group()
"""
    )
    run_ranks(script, 4, env={"NEURON_EMU_LIMITS": limits}).check()


@LIMITS
def test_point_to_point_limits(limits: str) -> None:
    """Field case 12: without a source, an error that asks for a peer."""
    script = (
        PRELUDE
        + """
dist.init_process_group("neuron")
peer = 1 - rank
strided = torch.ones(4, 4, device="neuron").t()
with documented(ValueError, "p2p-non-contiguous", "needs a contiguous tensor"):
    dist.send(strided, dst=1) if rank == 0 else dist.recv(strided, src=0)
with documented(NotImplementedError, "p2p-any-source", "needs an explicit peer"):
    dist.send(strided.contiguous(), dst=1) if rank == 0 and limits == "extended" else None
    dist.recv(torch.zeros(4, 4, device="neuron")) if rank == 1 or limits != "extended" else None

def exchange():
    # Not batched: what goes first waits for the peer, who does the same.
    source, target = torch.ones(70_000, device="neuron"), torch.zeros(70_000, device="neuron")
    receive = dist.irecv(target, src=peer)
    send = dist.isend(source, dst=peer)
    send.wait(), receive.wait()
    assert target.sum().item() == 70_000

if limits != "strict":
    unconfirmed("p2p-unbatched-exchange", exchange)
torch.neuron.synchronize()
dist.destroy_process_group()
"""
    )
    run_ranks(script, 2, env={"NEURON_EMU_LIMITS": limits}).check()


@LIMITS
def test_each_rule_acts_by_its_level(limits: str) -> None:
    script = (
        PRELUDE
        + """
import builtins
from neuron_emu.rules import check, rules
for rule in rules():
    kind = getattr(builtins, rule.error)
    if rule.level == "unconfirmed":
        unconfirmed(rule.id, lambda: check(rule.id, "by this test"), kind)
    else:
        with documented(kind, rule.id, rule.text + " (by this test)"):
            check(rule.id, "by this test")
"""
    )
    run_ranks(script, 1, env={"NEURON_EMU_LIMITS": limits}).check()


def test_rules_table() -> None:
    table = {rule.id: rule for rule in rules()}
    assert len(table) == len(rules())
    assert all(rule.text and rule.source and rule.sdk_release and "::" in rule.test for rule in rules())
    assert table["runtime-before-group"].error == "AssertionError"
    with pytest.raises(NotImplementedError, match=r"here\) .*'set-timeout'"):
        check("set-timeout", "here")
    with pytest.raises(KeyError, match="no-such-rule"):
        check("no-such-rule")


def test_every_rule_names_a_test_that_exists() -> None:
    root = Path(__file__).parents[2]
    for rule in rules():
        file, function = rule.test.split("::")
        assert f"def {function}(" in (root / file).read_text(), rule.test
