"""Made-up texts, a tokenizer that was trained on them, and files that have them."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

import mdsx

END = "<|endoftext|>"
_SYLLABLES = ("ba", "ko", "mi", "ner", "tul", "sa", "é", "ø", "日本", "🙂", "x1")


def documents(count: int, seed: int = 7) -> list[str]:
    """Return texts of all lengths, some of them empty."""
    rng = random.Random(seed)
    words = ["".join(rng.choices(_SYLLABLES, k=rng.randint(1, 4))) for _ in range(200)]
    return [" ".join(rng.choices(words, k=min(int(rng.lognormvariate(2, 1)), 200))) for _ in range(count)]


@cache
def _trained(size: int) -> str:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=size, special_tokens=[END], initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(documents(300), trainer)
    return tokenizer.to_str()


def tokenizer_file(folder: Path, size: int = 400) -> Path:
    """Write the tokenizer that was trained on the documents."""
    path = folder / f"tokenizer-{size}.json"
    path.write_text(_trained(size), encoding="utf-8")
    return path


def lines(path: Path, texts: Iterable[str], **more: Sequence[Any]) -> Path:
    """Write texts as JSON lines with an id, a nested value, and more columns."""
    rows = [
        {
            "id": number,
            "text": text,
            "meta": {"text": number},
            **{name: values[number] for name, values in more.items()},
        }
        for number, text in enumerate(texts)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def tokens(url: str | Path) -> list[list[int]]:
    """Return the tokens of all rows of a dataset."""
    return [sample["tokens"].tolist() for sample in mdsx.Dataset(url)]


def expected(path: Path, texts: Iterable[str], end: int | None = None) -> list[list[int]]:
    """Return the tokens that the tokenizer itself has for each text."""
    encoded = Tokenizer.from_file(str(path)).encode_batch(list(texts), add_special_tokens=False)
    return [[*each.ids, *([end] if end is not None and each.ids else [])] for each in encoded]
