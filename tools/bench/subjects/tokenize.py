"""Tokenizing JSON lines to a dataset: against the tokenizer alone, on all cores."""

from __future__ import annotations

import json
import random
import tempfile
from functools import partial
from itertools import islice
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

import mdsx
from tools.bench.measure import Figures, timed
from tools.bench.subject import Subject
from tools.bench.subjects import alone, call

_FILES, _PROCESSES = 16, 2
_SIZE = 32_000_000  # characters
_WORDS, _VOCABULARY = 30_000, 32_000
_MEDIAN, _SIGMA = 400, 1.0  # words of a document, log-normal
_END = "<|endoftext|>"


def subjects(scale: float) -> list[Subject]:
    texts = call(prepare_texts, size=max(int(_SIZE * scale), 200_000))
    mine = alone("mdsx", f"mdsx.tokenize, {_PROCESSES} processes", tokenize, texts, processes=_PROCESSES)
    limit = alone("limit", "tokenizers, encode_batch", encode, texts)
    return [
        Subject(
            name="tokenize",
            title="text: JSON lines to a dataset of tokens",
            figure="tokens/s",
            contestants=[mine, limit],
            note=f"Made-up words in {_FILES} files, with a byte-level BPE of {_VOCABULARY:,} tokens. encode_batch has "
            "all texts of a file in memory, and uses all cores; its tokens are not kept. Starting processes counts.",
        )
    ]


def _documents(size: int) -> list[str]:
    rng = random.Random(7)
    letters = "etaoinshrdlucmfwypvbgkjqxz"
    lengths = [max(int(rng.lognormvariate(1.5, 0.5)), 1) for _ in range(_WORDS)]
    words = ["".join(rng.choices(letters, weights=range(26, 0, -1), k=length)) for length in lengths]
    weights = [1 / rank for rank in range(1, _WORDS + 1)]
    found, total = list[str](), 0
    while total < size:
        count = max(int(rng.lognormvariate(0, _SIGMA) * _MEDIAN), 1)
        found.append(" ".join(rng.choices(words, weights=weights, k=count)))
        total += len(found[-1])
    return found


def prepare_texts(data: str, size: int) -> Figures:
    """Files of JSON lines, and a tokenizer that was trained on some of their texts."""
    texts = _documents(size)
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=_VOCABULARY, special_tokens=[_END], initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(islice(texts, 4000), trainer)
    tokenizer.save(str(Path(data) / "tokenizer.json"))
    for number in range(_FILES):
        lines = (json.dumps({"id": place, "text": text}) + "\n" for place, text in enumerate(texts[number::_FILES]))
        (Path(data) / f"{number:02}.jsonl").write_text("".join(lines))
    return {}


def tokenize(data: str, processes: int) -> Figures:
    """Tokenize all files, with an end of text."""
    with tempfile.TemporaryDirectory() as folder:
        done, took = timed(
            lambda: mdsx.tokenize(
                f"{data}/*.jsonl",
                folder,
                f"{data}/tokenizer.json",
                end_of_text=_END,
                num_workers=processes,
            )
        )
    return {"tokens/s": done.tokens / took}


def encode(data: str) -> Figures:
    """Encode all texts, file by file; reading them does not count."""
    tokenizer = Tokenizer.from_file(f"{data}/tokenizer.json")
    tokens, total = 0, 0.0
    for path in sorted(Path(data).glob("*.jsonl")):
        texts = [json.loads(line)["text"] for line in path.read_text().splitlines()]
        encoded, took = timed(partial(tokenizer.encode_batch, texts, add_special_tokens=False))
        total += took
        tokens += sum(1 + len(each) for each in encoded)
    return {"tokens/s": tokens / total}
