"""What TorchTitan is given to read: a tokenizer of bytes, and a small text in words that a model can learn."""

from __future__ import annotations

import json
import random
from pathlib import Path

from tokenizers import Tokenizer, models, pre_tokenizers

WORDS = ["core", "stream", "rank", "group", "event", "pipe", "shard", "mesh", "gate", "loss", "step"]


def write_tokenizer(folder: Path) -> None:
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={letter: i for i, letter in enumerate(letters)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.add_special_tokens(["<s>", "</s>"])
    folder.mkdir()
    tokenizer.save(str(folder / "tokenizer.json"))
    ends = {"bos_token": "<s>", "eos_token": "</s>", "add_bos_token": True, "add_eos_token": True}
    (folder / "tokenizer_config.json").write_text(json.dumps(ends))


def write_text(folder: Path) -> None:
    generator = random.Random(0)
    folder.mkdir()
    with (folder / "data.json").open("w") as file:
        for _ in range(400):
            file.write(json.dumps({"text": " ".join(generator.choice(WORDS) for _ in range(60))}) + "\n")
