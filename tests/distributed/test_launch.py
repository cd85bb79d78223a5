"""Starting a job: the specification's script, core assignment, and what is wrong with a launch."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from launch import RunResult, run_ranks, run_torchrun

ROOT = Path(__file__).parents[2]
GUIDE = ROOT / "examples" / "test_distributed.py"

MINIMAL = """
import torch, torch.distributed as dist
dist.init_process_group("neuron")
value = torch.ones(1, device="neuron")
dist.all_reduce(value)
print("sum", value.item(), torch.neuron.get_device_properties(torch.neuron.current_device()), flush=True)
dist.destroy_process_group()
"""


def refused_everywhere(run: RunResult, *texts: str) -> None:
    for rank in run.ranks:
        assert rank.returncode not in (0, None), run.describe()
        for text in texts:
            assert text in rank.stderr, f"{text!r} is missing\n{run.describe()}"


@pytest.mark.parametrize(("workers", "total"), [(2, "3.0"), (4, "10.0")])
def test_guide_script(workers: int, total: str) -> None:
    run = run_torchrun(GUIDE, workers)
    assert run.returncode == 0, run.describe()
    # Both workers write to one pipe: their lines may meet on one.
    told = re.findall(r"rank=\d+ local_rank=\d+ world_size=\d+: all_reduce=\d+\.\d+", run.stdout)
    expected = [f"rank={r} local_rank={r} world_size={workers}: all_reduce={total}" for r in range(workers)]
    assert sorted(told) == expected, run.describe()


def test_each_worker_takes_one_visible_core() -> None:
    script = """
import os, torch, torch.distributed as dist
dist.init_process_group("neuron")
core = torch.neuron.get_device_properties(torch.neuron.current_device()).logical_core
print(f"rank={os.environ['RANK']} device={torch.neuron.current_device()} core={core}", flush=True)
dist.destroy_process_group()
"""
    run = run_ranks(script, 2, env={"NEURON_RT_VISIBLE_CORES": "4-5"}).check()
    assert [r.stdout.strip() for r in run.ranks] == ["rank=0 device=0 core=4", "rank=1 device=1 core=5"]


@pytest.mark.parametrize(
    ("cores", "there_are", "workers"), [("0-0", "1 logical core is", 2), ("4-5", "2 logical cores are", 3)]
)
def test_more_workers_than_cores(cores: str, there_are: str, workers: int) -> None:
    """Field case 58."""
    run = run_ranks(MINIMAL, workers, env={"NEURON_RT_VISIBLE_CORES": cores})
    refused_everywhere(run, f"LOCAL_WORLD_SIZE={workers}", there_are, f"NEURON_RT_VISIBLE_CORES={cores}")


def test_more_workers_than_cores_under_torchrun() -> None:
    run = run_torchrun(GUIDE, 3, env={"NEURON_RT_VISIBLE_CORES": "4-5"})
    assert run.returncode not in (0, None), run.describe()
    for rank in range(3):
        assert re.search(rf"rank ?{rank}\b.*NEURON_RT_VISIBLE_CORES", run.stderr), run.describe()


@pytest.mark.parametrize("cores", ["3-1", "a", "", " "])
def test_malformed_core_range(cores: str) -> None:
    """Field case 58."""
    refused_everywhere(run_ranks(MINIMAL, 2, env={"NEURON_RT_VISIBLE_CORES": cores}), "NEURON_RT_VISIBLE_CORES")


def test_core_range_wrong_on_one_rank_only() -> None:
    run = run_ranks(MINIMAL, 2, rank_env=[{}, {"NEURON_RT_VISIBLE_CORES": "9-3"}])
    refused_everywhere(run, "NEURON_RT_VISIBLE_CORES", "rank 1")


@pytest.mark.parametrize("missing", ["LOCAL_RANK", "LOCAL_WORLD_SIZE"])
def test_local_variables_missing(missing: str) -> None:
    """Field case 58."""
    refused_everywhere(run_ranks(MINIMAL, 2, env={missing: None}), f"{missing} is not set", "local-variables")


def test_local_variables_missing_on_one_rank() -> None:
    run = run_ranks(MINIMAL, 2, rank_env=[{}, {"LOCAL_RANK": None}])
    refused_everywhere(run, "LOCAL_RANK is not set", "rank 1")


def test_local_variables_are_worked_out_when_limits_are_lifted() -> None:
    script = MINIMAL + "print('device', torch.neuron.current_device())\n"
    env = {"LOCAL_RANK": None, "LOCAL_WORLD_SIZE": None, "NEURON_EMU_LIMITS": "extended"}
    run = run_ranks(script, 3, env=env).check()
    assert [f"device {r}" in run.ranks[r].stdout for r in range(3)] == [True] * 3, run.describe()


@pytest.mark.parametrize(
    ("rank_env", "text"),
    [
        ([{"LOCAL_RANK": "0"}, {"LOCAL_RANK": "0"}], "LOCAL_RANK=0 is set for rank 0"),
        ([{"LOCAL_WORLD_SIZE": "2"}, {"LOCAL_WORLD_SIZE": "4"}], "LOCAL_WORLD_SIZE is 2 for rank 0"),
        ([{}, {"LOCAL_RANK": "5"}], "LOCAL_RANK=5"),
        ([{"LOCAL_RANK": "zero"}, {}], "LOCAL_RANK=zero"),
    ],
)
def test_local_variables_inconsistent(rank_env: list[dict[str, str]], text: str) -> None:
    refused_everywhere(run_ranks(MINIMAL, 2, rank_env=rank_env), text)


def test_runtime_before_group() -> None:
    """Field case 58: a tensor before the group."""
    script = "import os, torch\nif os.environ['RANK'] == '1': torch.ones(1, device='neuron')\n" + MINIMAL
    run = run_ranks(script, 2)
    words = "AssertionError: Neuron runtime should not be initialized before the init_process_group."
    refused_everywhere(run, words, "rank 1", "NEURON_EMU_LIMITS=extended")
    run_ranks(script, 2, env={"NEURON_EMU_LIMITS": "extended"}).check()


def test_looking_is_not_starting() -> None:
    looking = """
import torch
torch.neuron.is_available(), torch.neuron.device_count(), torch.neuron.current_device()
torch.neuron.get_device_name(torch.neuron.current_device())
torch.manual_seed(0), torch.neuron.manual_seed_all(0), torch.neuron.memory_allocated()
torch.neuron.synchronize(), torch.neuron.empty_cache()
"""
    run_ranks(looking + MINIMAL, 2).check()


def test_custom_launcher_sets_variables_inside_the_program() -> None:
    script = """
import os, sys, torch.multiprocessing as mp

def worker(local_rank, port):
    import torch, torch.distributed as dist
    os.environ.update(RANK=str(local_rank), WORLD_SIZE="2", LOCAL_RANK=str(local_rank), LOCAL_WORLD_SIZE="2",
                      MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
    dist.init_process_group("neuron")
    value = torch.tensor([local_rank + 1.0], device="neuron")
    dist.all_reduce(value)
    assert value.item() == 3.0 and value.device.index == local_rank
    dist.destroy_process_group()

if __name__ == "__main__":
    port = os.environ.pop("MASTER_PORT")
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR"):
        del os.environ[name]
    mp.spawn(worker, args=(port,), nprocs=2)
    print("spawned")
"""
    assert "spawned" in run_ranks(script, 1).check().stdout


def test_groups_made_again_over_one_store() -> None:
    script = """
import os, torch, torch.distributed as dist
rank = int(os.environ["RANK"])
store = dist.TCPStore("127.0.0.1", int(os.environ["MASTER_PORT"]), 2, rank == 0)
for round in range(3):
    dist.init_process_group("neuron", store=store, rank=rank, world_size=2)
    pair = dist.new_group([0, 1])
    value = torch.ones(1, device="neuron")
    for group in (None, pair):
        dist.all_reduce(value, group=group)
    assert value.item() == 4.0, value
    dist.destroy_process_group()
print("again")
"""
    assert run_ranks(script, 2).check().stdout.count("again") == 2


def test_composite_group() -> None:
    """Field case 24: both devices, in new groups and meshes too; without it, the error names the device."""
    script = """
import os, torch, torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
rank = int(os.environ["RANK"])
dist.init_process_group("cpu:gloo,neuron:neuron")
cpu = torch.device("cpu")
for group in (None, dist.new_group([0, 1]), *(init_device_mesh(d, (2,)).get_group() for d in ("cpu", "neuron"))):
    for device in ("cpu", "neuron"):
        value = torch.tensor([rank + 1.0], device=device)
        dist.all_reduce(value, group=group)
        assert value.item() == 3.0, (device, value)
    objects = [None, None]
    dist.all_gather_object(objects, {"rank": rank, "t": torch.tensor([rank], device="neuron")}, group=group)
    assert [o["rank"] for o in objects] == [o["t"].item() for o in objects] == [0, 1]
    (group or dist.group.WORLD)._get_backend(cpu).monitored_barrier()
dist.monitored_barrier(dist.new_group(backend="gloo"))
dist.barrier()
dist.destroy_process_group()
"""
    run_ranks(script, 2).check()


@pytest.mark.parametrize(("backend", "device"), [("neuron", "cpu"), ("gloo", "neuron")])
def test_a_device_that_the_group_does_not_have(backend: str, device: str) -> None:
    """Field case 24: torch's own words, which name the device; README says how to ask for both."""
    script = f"""
import torch, torch.distributed as dist
dist.init_process_group("{backend}")
try:
    dist.all_reduce(torch.ones(1, device="{device}"))
except RuntimeError as error:
    assert "No backend type associated with device type {device}" in str(error), error
    print("refused")
dist.destroy_process_group()
"""
    assert run_ranks(script, 2).check().stdout.count("refused") == 2


def test_device_id_and_meshes() -> None:
    """Field case 39: with a bound device, meshes split groups."""
    script = """
import os, torch, torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
rank = int(os.environ["RANK"])
dist.init_process_group("neuron", device_id=torch.device("neuron", rank))
mesh = init_device_mesh("neuron", (2, 2), mesh_dim_names=("a", "b"))
for name, expected in (("a", rank % 2 * 2 + 2), ("b", rank // 2 * 4 + 1)):
    value = torch.tensor([float(rank)], device="neuron")
    dist.all_reduce(value, group=mesh[name].get_group())
    assert value.item() == expected, (name, value.item(), expected)
flat = mesh["a", "b"]._flatten("ab")
value = torch.ones(1, device="neuron")
dist.all_reduce(value, group=flat.get_group())
assert value.item() == 4.0
some = dist.new_group([1, 2])
if rank in (1, 2):
    dist.all_reduce(value, group=some)
    assert value.item() == 8.0
dist.barrier()
dist.destroy_process_group()
"""
    run_ranks(script, 4, env={"NEURON_EMU_LIMITS": "extended"}).check()


def test_debug_detail() -> None:
    run_ranks(MINIMAL, 2, env={"TORCH_DISTRIBUTED_DEBUG": "DETAIL"}).check()


def test_barrier_is_the_first_call() -> None:
    """Field case 23: with and without device_ids, with ranks that come at random times; of a subgroup at once."""
    script = """
import os, random, time, torch, torch.distributed as dist
dist.init_process_group("neuron")
dist.barrier()
for turn in range(5):
    time.sleep(random.random() / 20)
    dist.barrier(device_ids=[torch.neuron.current_device()] if turn % 2 else None)
some = dist.new_group([0, 2])
if dist.get_rank() != 1:
    try:
        dist.barrier(group=some)
        passed = True
    except NotImplementedError as error:
        assert "subgroup-barrier" in str(error)
        passed = False
    assert passed == (os.environ["NEURON_EMU_LIMITS"] == "extended")
dist.barrier()
dist.destroy_process_group()
"""
    for limits in ("documented", "extended"):
        run_ranks(script, 3, env={"NEURON_EMU_LIMITS": limits}, timeout=40).check()


def test_a_rank_that_never_comes_is_named() -> None:
    script = """
import datetime, os, sys, time, torch, torch.distributed as dist
rank = int(os.environ["RANK"])
dist.init_process_group("gloo")
if rank == 2:
    time.sleep(8)
    sys.exit(0)
try:
    dist.new_group([0, 1, 2], backend="neuron", timeout=datetime.timedelta(seconds=3))
except dist.DistBackendError as error:
    assert "rank 2 did not come" in str(error), error
    print("named", flush=True)
    os._exit(0)
"""
    run = run_ranks(script, 3)
    assert [r.stdout.strip() for r in run.ranks] == ["named", "named", ""], run.describe()


def test_the_rank_that_has_the_store_may_end_first() -> None:
    # Rank 1's answers from the Store take so long that rank 0 has ended before it would ask again.
    script = """
import os, time, torch, torch.distributed as dist

class Slow(dist.Store):
    def __init__(self, store):
        super().__init__()
        self.store = store

    def slow(name):
        def call(self, *args):
            result = getattr(self.store, name)(*args)
            time.sleep(0.3)
            return result
        return call

    set, get, add, check = slow("set"), slow("get"), slow("add"), slow("check")
    wait, delete_key = slow("wait"), slow("delete_key")

rank = int(os.environ["RANK"])
store = dist.TCPStore("127.0.0.1", int(os.environ["MASTER_PORT"]), 2, rank == 0)
dist.init_process_group("neuron", store=Slow(store) if rank == 1 else store, rank=rank, world_size=2)
dist.destroy_process_group()
os._exit(0)
"""
    run = run_ranks(script, 2).check()
    assert not any("Store" in rank.stderr for rank in run.ranks), run.describe()


def test_a_member_that_ends_with_the_store_in_the_middle_of_the_set_up() -> None:
    # Rank 1 has the members' addresses, has connected to nobody, and ends: rank 0 waits for its connection.
    script = """
import os, torch, torch.distributed as dist

class Ending(dist.Store):
    def __init__(self, store):
        super().__init__()
        self.store = store

    def get(self, key):
        if key.endswith("/table"):
            os._exit(3)
        return self.store.get(key)

    def set(self, *args): return self.store.set(*args)
    def add(self, *args): return self.store.add(*args)
    def check(self, *args): return self.store.check(*args)
    def wait(self, *args): return self.store.wait(*args)
    def delete_key(self, *args): return self.store.delete_key(*args)

rank = int(os.environ["RANK"])
store = dist.TCPStore("127.0.0.1", int(os.environ["MASTER_PORT"]), 2, rank == 1)
dist.init_process_group("neuron", store=Ending(store) if rank == 1 else store, rank=rank, world_size=2)
"""
    run = run_ranks(script, 2)
    assert [rank.returncode for rank in run.ranks] == [1, 3], run.describe()
    assert "the Store of the group cannot be reached" in run.ranks[0].stderr, run.describe()


def test_a_program_may_end_without_destroying_its_group() -> None:
    script = MINIMAL.replace("dist.destroy_process_group()", "")
    run_ranks(script, 2).check()
