"""Host cost of `a + b` on 64 floats: neuron against CPU in one process, in turn; bursts below the run-ahead limit, and
sustained. Prints microseconds a call and the median ratio; --json writes the same."""

from __future__ import annotations

import argparse
import json
import statistics
import time

import torch

import torch_neuronx  # noqa: F401

BURST = 200  # below NEURON_EMU_MAX_COMMANDS_AHEAD
SUSTAINED = 20_000


def microseconds(a: torch.Tensor, b: torch.Tensor, calls: int) -> float:
    start = time.perf_counter()
    for _ in range(calls):
        a + b
    return (time.perf_counter() - start) / calls * 1e6


def measure(calls: int, rounds: int) -> dict[str, float]:
    cpu = torch.randn(64), torch.randn(64)
    neuron = cpu[0].to("neuron"), cpu[1].to("neuron")
    host, device, ratios = [], [], []
    for _ in range(rounds):
        torch.neuron.synchronize()
        device.append(microseconds(*neuron, calls))
        torch.neuron.synchronize()
        host.append(microseconds(*cpu, calls))
        ratios.append(device[-1] / host[-1])
    return {
        "cpu_us": statistics.median(host),
        "neuron_us": statistics.median(device),
        "ratio": statistics.median(ratios),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    result = {"burst": measure(BURST, 300), "sustained": measure(SUSTAINED, 9)}
    for name, row in result.items():
        print(f"a + b, {name}: cpu {row['cpu_us']:.2f} us, neuron {row['neuron_us']:.2f} us, {row['ratio']:.2f}x")
    if args.json:
        with open(args.json, "w") as file:
            json.dump(result, file, indent=1)


if __name__ == "__main__":
    main()
