"""The lengths of samples: what they are, where they come from, and what is read for them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mdsx
from mdsx.shards import View
from mdsx.shards.lengths import lengths_of

COLUMNS = {
    "id": "int64",
    "tokens": "uint16[*]",
    "text": "str?",
    "small": "uint8",
    "pair": "float32[2]",
    "maybe": "uint16[3]?",
    "matrix": "float32[*,2]",
    "words": "str[*]",
    "score": "float32",
}


def sample(number: int) -> dict[str, Any]:
    return {
        "id": number,
        "tokens": np.arange(number * 7 % 11, dtype=np.uint16),
        "text": None if number % 5 == 0 else "é" * (number % 4),
        "small": number % 200,
        "pair": [0.5, number],
        "maybe": None if number % 2 else [1, 2, 3],
        "matrix": np.zeros((number % 3, 2), np.float32),
        "words": ["a"] * (number % 3),
        "score": 0.5,
    }


EXPECTED: dict[str, Callable[[int], int]] = {
    "id": lambda number: number,
    "tokens": lambda number: number * 7 % 11,
    "text": lambda number: 0 if number % 5 == 0 else 2 * (number % 4),
    "small": lambda number: number % 200,
    "pair": lambda number: 2,
    "maybe": lambda number: 0 if number % 2 else 3,
}


def write(url: Path, count: int = 500, **options: Any) -> mdsx.Dataset:
    with mdsx.Writer(url, COLUMNS, shard_size=10_000, **options) as out:
        for number in range(count):
            out.write(sample(number))
    return mdsx.Dataset(url, cache=url.parent / "cache")


@pytest.fixture(scope="module", params=[None, "zstd"])
def data(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> mdsx.Dataset:
    return write(tmp_path_factory.mktemp("lengths") / "data", compression=request.param)


def all_lengths(data: mdsx.Dataset, length: Any) -> list[int]:
    view = View([data.excerpt])
    shards = np.repeat(np.arange(len(view.counts)), view.counts)
    samples = np.concatenate([np.arange(count) for count in view.counts])
    found: list[int] = lengths_of(view, length).of(shards, view.stored(shards, samples)).tolist()
    return found


@pytest.mark.parametrize("column", EXPECTED)
def test_each_rule_gives_lengths(data: mdsx.Dataset, column: str) -> None:
    assert all_lengths(data, column) == [EXPECTED[column](number) for number in range(len(data))]


@pytest.mark.parametrize("column", ["matrix", "words", "score", "absent"])
def test_a_column_without_lengths_is_refused(data: mdsx.Dataset, column: str) -> None:
    with pytest.raises(mdsx.UsageError, match="id, tokens, text, small, pair, maybe"):
        lengths_of(View([data.excerpt]), column)
