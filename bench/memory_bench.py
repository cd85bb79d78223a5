"""Peak memory of a GPT training run: on CPU, on neuron, and on neuron with every operator waited for.

Each in a process of its own. Prints the peak of device memory (asynchronous / synchronous) and the peak resident set
of the process, which the device's memory is part of (neuron / CPU).
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys

STEPS = 8


def run(device: str, batch: int) -> dict[str, int]:
    """In the child: trains, and returns peak bytes."""
    import torch
    from gpt import GPT, loss_of

    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = GPT().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    tokens = torch.randint(0, 512, (batch, 65)).to(device)
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss_of(model, tokens[:, :-1], tokens[:, 1:]).backward()
        optimizer.step()
    peaks = {"host": 0, "device": 0}
    if device == "neuron":
        torch.neuron.synchronize()
        peaks["device"] = torch.neuron.max_memory_allocated()
    peaks["host"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return peaks


def in_child(device: str, batch: int, **variables: str) -> dict[str, int]:
    command = [sys.executable, __file__, "--child", device, "--batch", str(batch)]
    done = subprocess.run(command, env={**os.environ, **variables}, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--child")
    parser.add_argument("--batch", type=int, default=0)
    parser.add_argument("--json")
    args = parser.parse_args()
    if args.child:
        print(json.dumps(run(args.child, args.batch)))
        return
    rows = []
    for batch in (4, 32):
        cpu, ahead = in_child("cpu", batch), in_child("neuron", batch, NEURON_EMU_INLINE="never")
        waited = in_child("neuron", batch, NEURON_LAUNCH_BLOCKING="1")
        row = {
            "batch": batch,
            "device_bytes": ahead["device"],
            "device_ratio": ahead["device"] / waited["device"],
            "host_bytes": ahead["host"],
            "host_ratio": ahead["host"] / cpu["host"],
        }
        rows.append(row)
        print(
            f"GPT, batch {batch}: device peak {row['device_bytes'] / 2**20:.1f} MiB, {row['device_ratio']:.3f}x of "
            f"synchronous; resident peak {row['host_bytes'] / 2**20:.0f} MiB, {row['host_ratio']:.3f}x of CPU",
            flush=True,
        )
    if args.json:
        with open(args.json, "w") as file:
            json.dump({"steps": STEPS, "rows": rows}, file, indent=1)


if __name__ == "__main__":
    main()
