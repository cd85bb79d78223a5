"""Options of DDP that are expected failures on the product: they work here and warn once, or raise when strict."""

from __future__ import annotations

import pytest
from launch import run_ranks

SCRIPT = """
import os, warnings
import torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
limits = os.environ["NEURON_EMU_LIMITS"]
dist.init_process_group("{backend}")
options = {{
    "ddp-find-unused": dict(find_unused_parameters=True),
    "ddp-bucket-cap": dict(bucket_cap_mb=1),
}}

def make(**kwargs):
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        try:
            model = DDP(torch.nn.Linear(4, 4).to("{device}"), **kwargs)
            model(torch.ones(2, 4, device="{device}")).sum().backward()
        except NotImplementedError as error:
            return [str(error)], False
    return [str(warning.message) for warning in told], True

assert not [text for text in make()[0] if "ddp-" in text]
for rule, kwargs in options.items():
    for turn in range(2):
        texts, made = make(**kwargs)
        mine = [text for text in texts if "limit 'ddp-" in text]
        if "{device}" == "cpu" or limits == "extended":
            expected = 0
        elif limits == "strict":
            expected = 1
        else:
            expected = 1 - turn
        assert made == (expected == 0 or limits != "strict"), (rule, texts)
        assert len(mine) == expected and all(rule in text for text in mine), (rule, turn, texts)
dist.destroy_process_group()
"""


@pytest.mark.parametrize("limits", ["documented", "strict", "extended"])
@pytest.mark.parametrize("backend", ["neuron", "cpu:gloo,neuron:neuron"])
def test_option_rules(backend: str, limits: str) -> None:
    run_ranks(SCRIPT.format(backend=backend, device="neuron"), 2, env={"NEURON_EMU_LIMITS": limits}).check()


def test_other_backends_are_left_alone() -> None:
    run_ranks(SCRIPT.format(backend="gloo", device="cpu"), 2, env={"NEURON_EMU_LIMITS": "strict"}).check()
