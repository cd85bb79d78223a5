"""Train a small GPT on dp x tp x pp workers, from flags; the tour in docs/tour.md goes through it.

torchrun --standalone --nproc-per-node=4 examples/train_gpt.py --tp 2 --pp 2 --checkpoint /tmp/gpt

What is left of the workers after tensor and pipeline parallelism is data parallel. `--device cpu` does the same over
gloo. A run with `--checkpoint` continues the one before it, with any other number of workers, too.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint import state_dict as of
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

import torch_neuronx  # Registers the Neuron device and distributed backend.

VOCABULARY = 256


class Attention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.head_width = width // heads
        self.q, self.k, self.v, self.out = (nn.Linear(width, width, bias=False) for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, sequence, _ = x.shape
        # -1: with tensor parallelism, a worker has only its share of the heads.
        q, k, v = (f(x).view(batch, sequence, -1, self.head_width).transpose(1, 2) for f in (self.q, self.k, self.v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(batch, sequence, -1))


class MLP(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(width, 4 * width, bias=False), nn.Linear(4 * width, width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(F.gelu(self.up(x)))


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm1, self.attention = nn.LayerNorm(width), Attention(width, heads)
        self.norm2, self.mlp = nn.LayerNorm(width), MLP(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class Embedding(nn.Module):
    def __init__(self, width: int, sequence: int) -> None:
        super().__init__()
        self.token, self.place = nn.Embedding(VOCABULARY, width), nn.Embedding(sequence, width)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.token(tokens) + self.place(torch.arange(tokens.shape[1], device=tokens.device).unsqueeze(0))


class GPT(nn.Module):
    """Token ids (batch, sequence) -> logits; or the part of it that is one stage of the pipeline.

    A part keeps the names that its layers have in the whole: any split of the model reads any other's checkpoint.
    """

    def __init__(self, layers: int, width: int, heads: int, sequence: int) -> None:
        super().__init__()
        self.embedding: nn.Module | None = Embedding(width, sequence)
        self.blocks = nn.ModuleDict({str(i): Block(width, heads) for i in range(layers)})
        self.norm: nn.Module | None = nn.LayerNorm(width)
        self.head: nn.Module | None = nn.Linear(width, VOCABULARY, bias=False)

    def keep_stage(self, stage: int, stages: int) -> GPT:
        layers = len(self.blocks)
        for i in range(layers):
            if i * stages // layers != stage:
                del self.blocks[str(i)]
        if stage > 0:
            self.embedding = None
        if stage < stages - 1:
            self.norm = self.head = None
        return self

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.embedding is not None:
            x = self.embedding(x)
        for block in self.blocks.values():
            x = block(x)
        return self.head(self.norm(x)) if self.norm is not None and self.head is not None else x


def tensor_parallel(model: GPT, mesh: DeviceMesh) -> None:
    """Heads and hidden units over the workers; between them, everybody has a share of the sequence."""
    whole = PrepareModuleInput(input_layouts=Shard(1), desired_input_layouts=Replicate())
    for block in model.blocks.values():
        plan = {f"attention.{name}": ColwiseParallel() for name in "qkv"}
        plan |= {"norm1": SequenceParallel(), "attention": whole, "norm2": SequenceParallel(), "mlp": whole}
        plan |= {"mlp.up": ColwiseParallel()}
        plan |= {name: RowwiseParallel(output_layouts=Shard(1)) for name in ("attention.out", "mlp.down")}
        parallelize_module(block, mesh, plan)
    if model.embedding is not None:
        table = RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1))
        parallelize_module(model.embedding, mesh, {"token": table, "place": table})
    if model.head is not None:
        head = ColwiseParallel(input_layouts=Shard(1), output_layouts=Replicate())
        parallelize_module(model, mesh, {"norm": SequenceParallel(), "head": head})


def parallel_model(flags: argparse.Namespace, mesh: DeviceMesh, device: torch.device) -> nn.Module:
    torch.manual_seed(flags.seed)  # Start from identical parameters on all ranks.
    model = GPT(flags.layers, flags.width, flags.heads, flags.sequence)
    model.keep_stage(mesh["pp"].get_local_rank(), flags.pp).to(device)
    if flags.tp > 1:
        tensor_parallel(model, mesh["tp"])
    if flags.dp_mode == "ddp":
        return DDP(model, process_group=mesh["dp"].get_group()) if flags.dp > 1 else model
    if flags.dp > 1:
        for block in model.blocks.values():
            fully_shard(block, mesh=mesh["dp"])
        fully_shard(model, mesh=mesh["dp"])
    return model


def batch_of(flags: argparse.Namespace, step: int, replica: int, device: torch.device) -> tuple[torch.Tensor, ...]:
    """This replica's rows of the step's batch: counting in strides, with some noise. Made from the step alone."""
    generator = torch.Generator().manual_seed(1_000_003 * flags.seed + step)
    start = torch.randint(0, VOCABULARY, (flags.batch, 1), generator=generator)
    stride = torch.randint(1, 8, (flags.batch, 1), generator=generator)
    tokens = (start + stride * torch.arange(flags.sequence + 1)) % VOCABULARY
    noise = torch.rand(tokens.shape, generator=generator) < 0.02
    tokens = torch.where(noise, torch.randint(0, VOCABULARY, tokens.shape, generator=generator), tokens)
    mine = tokens[replica :: flags.dp].to(device)
    return mine[:, :-1].contiguous(), mine[:, 1:].contiguous()


def loss_of(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())


def step_function(
    flags: argparse.Namespace, model: nn.Module, mesh: DeviceMesh, device: torch.device
) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
    """Forward and backward over the replica's batch; gives the loss, 0 where the last stage is elsewhere."""
    stage = mesh["pp"].get_local_rank()

    def plain(tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        loss = loss_of(model(tokens), targets)
        loss.backward()
        return loss.detach()

    if flags.pp == 1:
        return plain

    rows = flags.batch // flags.dp // flags.microbatches
    tokens = torch.zeros(rows, flags.sequence, dtype=torch.int64, device=device)
    between = torch.zeros(rows, flags.sequence // flags.tp, flags.width, device=device, requires_grad=True)
    logits = torch.zeros(rows, flags.sequence, VOCABULARY, device=device, requires_grad=True)
    part = PipelineStage(
        model,
        stage_index=stage,
        num_stages=flags.pp,
        device=device,
        input_args=tokens if stage == 0 else between,
        output_args=logits if stage == flags.pp - 1 else between,
        group=mesh["pp"].get_group(),
    )
    schedule = Schedule1F1B(part, n_microbatches=flags.microbatches, loss_fn=loss_of)

    def pipelined(tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        losses: list[torch.Tensor] = []
        inputs = [tokens] if stage == 0 else []
        schedule.step(*inputs, target=targets if stage == flags.pp - 1 else None, losses=losses, return_outputs=False)
        return torch.stack(losses).mean().detach() if losses else torch.zeros((), device=device)

    return pipelined


class Checkpoints:
    """Numbered folders, each written by all ranks together; the newest whole one is where a run continues."""

    # Flat: the ranks of a pipeline have different parameters, and groups of them cannot be merged.
    OPTIONS = of.StateDictOptions(flatten_optimizer_state_dict=True)

    def __init__(self, folder: Path | None, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        self.folder, self.model, self.optimizer = folder, model, optimizer

    def _state(self) -> dict[str, object]:
        model, optimizer = of.get_state_dict(self.model, self.optimizer, options=self.OPTIONS)
        return {"model": model, "optimizer": optimizer}

    def save(self, step: int) -> None:
        if self.folder is not None:
            dcp.save(self._state(), checkpoint_id=self.folder / f"step-{step}")

    def load_newest(self) -> int:
        """The number of steps that are done."""
        found = [path.parent for path in self.folder.glob("step-*/.metadata")] if self.folder is not None else []
        if not found:
            return 0
        newest = max(found, key=lambda path: int(path.name.removeprefix("step-")))
        state = self._state()
        dcp.load(state, checkpoint_id=newest)
        of.set_state_dict(
            self.model,
            self.optimizer,
            model_state_dict=state["model"],
            optim_state_dict=state["optimizer"],
            options=self.OPTIONS,
        )
        return int(newest.name.removeprefix("step-"))


class Progress:
    """One line for each step on rank 0; on a terminal, a bar that stays in its line."""

    def __init__(self, steps: int, tokens_per_step: int) -> None:
        self.steps, self.tokens_per_step, self.last = steps, tokens_per_step, time.perf_counter()

    def show(self, step: int, loss: float) -> None:
        if dist.get_rank() != 0:
            return
        now = time.perf_counter()
        speed, self.last = self.tokens_per_step / (now - self.last), now
        text = f"step={step} loss={loss:.6f} tokens/s={speed:,.0f}"
        if sys.stdout.isatty():
            done = 30 * step // self.steps
            print(f"\r[{'=' * done:<30}] {text} ", end="" if step < self.steps else "\n", flush=True)
        else:
            print(text, flush=True)


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tp", type=int, default=1, help="workers that share each layer")
    parser.add_argument("--pp", type=int, default=1, help="stages of the model")
    parser.add_argument("--dp-mode", choices=("fsdp", "ddp"), default="fsdp")
    parser.add_argument("--device", choices=("neuron", "cpu"), default="neuron")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--batch", type=int, default=16, help="rows of a step, over all replicas")
    parser.add_argument("--microbatches", type=int, default=4, help="of each replica, in a pipeline")
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--sequence", type=int, default=32)
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--checkpoint", type=Path, help="folder to save to, and to continue from")
    parser.add_argument("--save-every", type=int, default=10)
    flags = parser.parse_args()

    world_size = int(os.environ["WORLD_SIZE"])
    flags.dp = world_size // (flags.tp * flags.pp)
    if flags.dp * flags.tp * flags.pp != world_size:
        parser.error(f"--tp {flags.tp} times --pp {flags.pp} does not divide the {world_size} workers")
    if flags.dp_mode == "ddp" and flags.tp > 1:
        parser.error("DDP does not take the DTensors of tensor parallelism: --dp-mode fsdp")
    for name, parts, of_what in (
        ("layers", flags.pp, "--pp"),
        ("heads", flags.tp, "--tp"),
        ("sequence", flags.tp, "--tp"),
        ("batch", flags.dp * (flags.microbatches if flags.pp > 1 else 1), "replicas times microbatches"),
    ):
        if getattr(flags, name) % parts:
            parser.error(f"--{name} {getattr(flags, name)} is not a multiple of {of_what} ({parts})")
    return flags


def train(flags: argparse.Namespace) -> None:
    sizes = {"dp": flags.dp, "pp": flags.pp, "tp": flags.tp}  # tensor parallel workers are next to each other
    mesh = init_device_mesh(flags.device, tuple(sizes.values()), mesh_dim_names=tuple(sizes))
    index = torch.neuron.current_device() if flags.device == "neuron" else None
    device = torch.device(flags.device, index)
    model = parallel_model(flags, mesh, device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=flags.lr)
    run_step = step_function(flags, model, mesh, device)
    checkpoints = Checkpoints(flags.checkpoint, model, optimizer)
    first = checkpoints.load_newest()
    progress = Progress(flags.steps, flags.batch * flags.sequence)
    for step in range(first + 1, flags.steps + 1):
        tokens, targets = batch_of(flags, step, mesh["dp"].get_local_rank(), device)
        optimizer.zero_grad()
        loss = run_step(tokens, targets)
        optimizer.step()
        # The last stages have it, each worker of a tensor parallel group the same.
        dist.all_reduce(loss)
        progress.show(step, loss.item() / (flags.dp * flags.tp))
        if step % flags.save_every == 0 or step == flags.steps:
            checkpoints.save(step)


if __name__ == "__main__":
    flags = parsed()
    dist.init_process_group("neuron" if flags.device == "neuron" else "gloo")
    try:
        train(flags)
    finally:
        dist.destroy_process_group()
