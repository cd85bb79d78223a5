"""`neuron-emu explain` on made dumps: who diverged first, who waits for whom."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from environments import ROOT

from neuron_emu.cli import explain
from neuron_emu.explain.dumps import UnusableError, load

Entry = dict[str, Any]


class Rank:
    """Writes one rank's dump."""

    def __init__(self, rank: int, world: int = 2) -> None:
        self.rank = rank
        self.entries: list[Entry] = []
        self.groups = {"0": ("default_pg", list(range(world)))}
        self.errors: dict[str, str] = {}
        self.reason = "on request"
        self.first_record = 0
        self.numbers: dict[str, int] = {}
        self.time_ns = 10**18

    def call(self, name: str = "all_reduce", shape: tuple[int, ...] = (16,), **changes: Any) -> Rank:
        group = changes.pop("group", "0")
        self.numbers[group] = number = changes.pop("number", self.numbers.get(group, 0) + 1)
        return self._add(name, group, [list(shape)], collective_seq_id=number, **changes)

    def message(self, kind: str, peer: int, shape: tuple[int, ...] = (16,), **changes: Any) -> Rank:
        self.numbers["p2p"] = number = self.numbers.get("p2p", 0) + 1
        name = f"{kind} {self.rank}{'->' if kind == 'send' else '<-'}{peer}"
        return self._add(name, "0", [list(shape)], is_p2p=True, p2p_seq_id=10**9 + number, **changes)

    def _add(self, name: str, group: str, sizes: list[list[int]], **changes: Any) -> Rank:
        own = {key: changes.pop(key) for key in ("reduce_op", "root", "tag") if key in changes}
        line = changes.pop("line", 10 + len(self.entries))
        entry: Entry = {
            "record_id": self.first_record + len(self.entries),
            "process_group": (group, self.groups[group][0]),
            "collective_seq_id": 0,
            "p2p_seq_id": 0,
            "is_p2p": False,
            "profiling_name": f"xccl:{name}",
            "time_created_ns": 1000 * len(self.entries) + self.rank,
            "input_sizes": sizes,
            "output_sizes": sizes,
            "input_dtypes": ["Float"] * len(sizes),
            "output_dtypes": ["Float"] * len(sizes),
            "state": "completed",
            "frames": [
                {"name": "all_reduce", "filename": "/x/torch/distributed/distributed_c10d.py", "line": 1},
                {"name": "step", "filename": "/job/train.py", "line": line},
            ],
            "neuron": own,
        }
        self.entries.append({**entry, **changes})
        return self

    def write(self, folder: Path) -> None:
        dump = {
            "version": "2.10",
            "pg_config": {
                name: {"name": name, "desc": desc, "ranks": str(ranks)} for name, (desc, ranks) in self.groups.items()
            },
            "entries": self.entries,
            "neuron": {"rank": self.rank, "errors": self.errors, "reason": self.reason, "time_ns": self.time_ns},
        }
        (folder / f"trace_rank_{self.rank}").write_bytes(pickle.dumps(dump, protocol=2))


def told(folder: Path, capsys: pytest.CaptureFixture[str], *ranks: Rank) -> tuple[int, str]:
    for rank in ranks:
        rank.write(folder)
    status = explain.run([str(folder)])
    return status, capsys.readouterr().out


def test_agreement(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, text = told(tmp_path, capsys, *(Rank(rank).call().call("barrier", ()) for rank in range(2)))
    assert status == 0
    assert "All ranks agree: 2 collectives in 1 group." in text


def test_the_minority_diverged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ranks = [Rank(rank, 4).call().call(state="started", line=21) for rank in (0, 1, 3)]
    odd = Rank(2, 4).call().call("broadcast", root=0, state="started", line=33)
    status, text = told(tmp_path, capsys, *ranks, odd)
    assert status == 1
    assert "rank 2 diverged first, at call #2 of group '0' (default_pg)." in text
    assert "1 call agrees, then call #2" in text
    assert "ranks 0, 1, 3: all_reduce(float32[16]) at train.py:21 (step)" in text
    assert "rank 2: broadcast(float32[16], root 0) at train.py:33 (step)" in text


@pytest.mark.parametrize(
    ("first", "second", "shown"),
    [
        ({"shape": (16,)}, {"shape": (8,)}, "[8]"),
        ({"reduce_op": "sum"}, {"reduce_op": "max"}, "max"),
        ({"name": "broadcast", "root": 0}, {"name": "broadcast", "root": 1}, "root 1"),
        ({}, {"input_dtypes": ["BFloat16"], "output_dtypes": ["BFloat16"]}, "bfloat16[16]"),
    ],
)
def test_two_ranks_differ(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], first: Any, second: Any, shown: str
) -> None:
    status, text = told(tmp_path, capsys, Rank(0).call(**first), Rank(1).call(**second))
    assert status == 1
    assert "rank 0 and rank 1 diverged at call #1" in text
    assert shown in text


def test_shape_alone_is_no_difference(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, _ = told(tmp_path, capsys, Rank(0).call(shape=(4, 4)), Rank(1).call(shape=(16,)))
    assert status == 0


def test_a_call_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    more = Rank(0).call().call("barrier", ()).call(shape=(8,), line=40)
    less = Rank(1).call().call(shape=(8,), line=40)
    status, text = told(tmp_path, capsys, more, less)
    assert status == 1
    assert "rank 0 makes that call next: either rank 1 left out barrier" in text


def test_a_rank_that_never_came(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    waiting = [Rank(rank, 3).call().call(state="started", line=21) for rank in (0, 2)]
    absent = Rank(1, 3).call(line=11)
    absent.reason = "this rank ended by ValueError: no data"
    waiting[0].errors = {"0": "group '0' (3 ranks): all_reduce #2 timed out\n  rank 1: not here"}
    status, text = told(tmp_path, capsys, *waiting, absent)
    assert status == 1
    assert "rank 1 diverged first: it never reached call #2" in text
    assert "ranks 0, 2: all_reduce(float32[16]) at train.py:21 (step) (waiting)" in text
    assert "its last call in this group was #1 all_reduce(float32[16]) at train.py:11 (step)" in text
    assert "this rank ended by ValueError: no data" in text
    assert "The group reported:" in text


def test_a_rank_without_a_dump(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, text = told(tmp_path, capsys, *(Rank(rank, 3).call().call(state="started") for rank in (0, 1)))
    assert status == 1
    assert "rank 2 diverged first: no dump of it, and the others wait in call #2" in text


def test_no_dump_of_a_rank_that_nobody_waits_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert told(tmp_path, capsys, Rank(0).call())[0] == 0


def test_what_was_overwritten_is_not_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    full, cut = Rank(0), Rank(1)
    for _ in range(5):
        full.call()
    cut.first_record = 3
    cut.call(number=4).call()
    status, text = told(tmp_path, capsys, full, cut)
    assert status == 0
    assert "All ranks agree: 2 collectives" in text
    assert "rank 1 made more calls than the recorder keeps" in text


def test_forms_of_one_kind_match(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = Rank(0).call("_all_gather_base", (4,), output_sizes=[[8]])
    other = Rank(1).call("all_gather", (4,), output_sizes=[[2, 4]])
    assert told(tmp_path, capsys, one, other)[0] == 0


def test_a_call_on_several_tensors_takes_several_numbers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    two = {"input_sizes": [[4], [2]], "output_sizes": [[4], [2]], "input_dtypes": ["Float"] * 2}
    together = Rank(0).call("allreduce_coalesced", **two).call(number=3)
    apart = Rank(1).call(shape=(4,)).call(shape=(2,)).call()
    status, text = told(tmp_path, capsys, together, apart)
    assert status == 0
    assert "3 collectives" in text


def test_uneven_parts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fits = [Rank(r).call("all_gather", (4 + r,), output_sizes=[[4], [5]], output_dtypes=["Float"] * 2) for r in (0, 1)]
    assert told(tmp_path, capsys, *fits)[0] == 0
    wrong = Rank(1).call("all_gather", (6,), output_sizes=[[4], [6]], output_dtypes=["Float"] * 2)
    status, text = told(tmp_path, capsys, wrong)
    assert status == 1
    assert "rank 0 has 5 elements for rank 1, which gives 6" in text


def test_all_to_all_sums(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, text = told(
        tmp_path, capsys, *(Rank(r).call("all_to_all", (4,), output_sizes=[[4 + r]], state="started") for r in (0, 1))
    )
    assert status == 1
    assert "all ranks together give 8 elements and expect 9" in text


def test_messages_under_way_agree(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pair = Rank(0).message("send", 1, state="started"), Rank(1).message("recv", 0, state="started")
    assert told(tmp_path, capsys, *pair)[0] == 0


def test_both_receive(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pair = (Rank(rank).message("recv", 1 - rank, state="started", line=50 + rank) for rank in (0, 1))
    status, text = told(tmp_path, capsys, *pair)
    assert status == 1
    assert "rank 0: #1 recv(float32[16], from rank 1) at train.py:50 (step): rank 1 never sends it" in text
    assert "They wait for each other: rank 0, which waits for rank 1, which waits for rank 0." in text


def test_a_message_of_another_size(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, text = told(
        tmp_path, capsys, Rank(0).message("send", 1, (8,)), Rank(1).message("recv", 0, (4,), state="started")
    )
    assert status == 1
    assert "rank 0 has #1 send(float32[8], to rank 1)" in text


def test_groups_in_opposite_orders(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ranks = [Rank(0), Rank(1)]
    for rank in ranks:
        rank.groups["1"] = ("pair", [0, 1])
    ranks[0].call(group="0", state="started")
    ranks[1].call(group="1", state="started")
    status, text = told(tmp_path, capsys, *ranks)
    assert status == 1
    assert "rank 1: not here; it made no call in this group; the last one it came to is #1 all_reduce" in text
    assert "They wait for each other" in text


def test_old_dumps_are_pointed_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old = Rank(1).call()
    old.time_ns -= 3600 * 10**9
    assert "the dump of rank 1 is more than 10 minutes older" in told(tmp_path, capsys, Rank(0).call(), old)[1]


def test_pytorchs_own_dumps(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for rank in (0, 1):
        Rank(rank).call(shape=(4 + rank,)).write(tmp_path)
        path = tmp_path / f"trace_rank_{rank}"
        dump = pickle.loads(path.read_bytes())
        del dump["neuron"], dump["entries"][0]["neuron"]
        path.write_bytes(pickle.dumps(dump))
    assert explain.run([str(tmp_path)]) == 1
    assert "diverged at call #1" in capsys.readouterr().out


def test_unusable_input(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert explain.run([str(tmp_path)]) == 2
    assert "no dump was found" in capsys.readouterr().err
    assert explain.run([str(tmp_path / "missing")]) == 2
    broken = tmp_path / "trace_rank_0"
    for content in (b"", b"text", pickle.dumps([1]), pickle.dumps({"version": "3.0"}), pickle.dumps(Path("x"))):
        broken.write_bytes(content)
        assert explain.run([str(broken)]) == 2, content
    Rank(0).call().write(tmp_path)
    (tmp_path / "copy_0").write_bytes(broken.read_bytes())
    with pytest.raises(UnusableError, match="two dumps of rank 0"):
        load([tmp_path])


def test_neither_torch_nor_the_extension_is_loaded(tmp_path: Path) -> None:
    Rank(0).call().write(tmp_path)
    script = (
        "import sys\nfrom neuron_emu.cli.main import main\n"
        f"status = main(['explain', {str(tmp_path)!r}])\n"
        "assert 'torch' not in sys.modules and 'neuron_emu._C' not in sys.modules\nsys.exit(status)"
    )
    assert subprocess.run([sys.executable, "-c", script], cwd=ROOT, check=False).returncode == 0
