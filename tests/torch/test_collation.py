"""mdsx.torch.collate: what PyTorch's default collation makes, and lists where PyTorch raises."""

from __future__ import annotations

from collections import OrderedDict, namedtuple
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader, default_collate

import mdsx
from mdsx.torch import StreamingDataLoader, StreamingDataset, collate

Point = namedtuple("Point", ["x", "y"])


def same(found: Any, expected: Any) -> bool:
    if isinstance(expected, torch.Tensor):
        return isinstance(found, torch.Tensor) and found.dtype == expected.dtype and torch.equal(found, expected)
    if isinstance(expected, tuple) and not isinstance(expected, Point):
        expected = list(expected)  # PyTorch leaves str that lie in tuples in a tuple
    if type(found) is not type(expected):
        return False
    if isinstance(expected, dict):
        return list(found) == list(expected) and all(same(found[key], expected[key]) for key in expected)
    if isinstance(expected, list | tuple):
        return len(found) == len(expected) and all(map(same, found, expected))
    return bool(np.all(found == expected))


LEAVES = st.sampled_from(["int", "float", "bool", "str", "bytes", "array", "number", "scalar array", "tensor", "half"])
KINDS = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
        st.lists(inner, max_size=3),
        st.tuples(inner, inner),
        st.builds(Point, inner, inner),
        st.builds(lambda one: OrderedDict(a=one), inner),
    ),
    max_leaves=6,
)


def value(kind: Any, number: int) -> Any:
    if isinstance(kind, dict):
        return type(kind)((key, value(inner, number + 1)) for key, inner in kind.items())
    if isinstance(kind, Point):
        return Point(value(kind.x, number), value(kind.y, number))
    if isinstance(kind, list | tuple):
        return type(kind)(value(inner, number) for inner in kind)
    return {
        "int": number,
        "float": number / 3,
        "bool": number % 2 == 0,
        "str": str(number),
        "bytes": bytes(number),
        "array": np.full((2, 3), number, np.int16),
        "number": np.float32(number),
        "scalar array": np.array(number, np.int32),
        "tensor": torch.full((2,), number),
        "half": torch.full((1, 2), number, dtype=torch.bfloat16),
    }[kind]


@settings(deadline=None, max_examples=60, derandomize=True)
@given(KINDS, st.integers(1, 4))
def test_collate_equals_pytorchs_default_collation(kind: Any, count: int) -> None:
    samples = [value(kind, number) for number in range(count)]
    assert same(collate(samples), default_collate(samples))


TENSOR = torch.tensor
LISTS: list[tuple[list[Any], Any]] = [
    ([1, None, np.int64(3)], [1, None, 3]),
    ([None, None], [None, None]),
    ([np.zeros(2), np.ones(1)], [torch.zeros(2, dtype=torch.float64), torch.ones(1, dtype=torch.float64)]),
    ([None, np.ones(1)], [None, torch.ones(1, dtype=torch.float64)]),
    ([{"page": 1}, None], [{"page": 1}, None]),
    ([{"page": 1}, {"page": None}], {"page": [1, None]}),
    ([[1], [2, 3]], [[1], [2, 3]]),
    ([{"a": {"b": 1}}, {"a": {"c": 1}}], {"a": [{"b": 1}, {"c": 1}]}),
    (["a", {"b": 1}, 3], ["a", {"b": 1}, 3]),
    ([1, "a"], [1, "a"]),
    ([2**70, 1], [2**70, 1]),
    ([memoryview(b"ab"), memoryview(b"c")], [memoryview(b"ab"), memoryview(b"c")]),
    ([np.array(["x"]), np.array(["y"])], [np.array(["x"]), np.array(["y"])]),
    ([(1, None), (2, 5)], [TENSOR([1, 2]), [None, 5]]),
]


@pytest.mark.parametrize(("samples", "expected"), LISTS)
def test_values_that_pytorch_cannot_collate_become_lists(samples: list[Any], expected: Any) -> None:
    assert same(collate(samples), expected)


def test_samples_with_different_keys_raise() -> None:
    with pytest.raises(mdsx.UsageError, match="different keys"):
        collate([{"a": 1}, {"a": 1, "b": 2}])


@pytest.fixture
def url(tmp_path: Path) -> str:
    columns = {"id": "int64", "flag": "bool", "meta": "json?", "data": "float32[*]", "text": "str", "raw": "bytes?"}
    with mdsx.Writer(tmp_path / "d", columns) as out:
        for number in range(8):
            meta = None if number % 2 else {"page": number}
            data = np.full(number % 3, number, np.float32)
            raw = None if number % 3 else b"raw"
            out.write({"id": number, "flag": True, "meta": meta, "data": data, "text": "t", "raw": raw})
    return str(tmp_path / "d")


@pytest.mark.parametrize("workers", [0, 1])
def test_a_dataset_works_under_a_plain_dataloader(url: str, workers: int) -> None:
    dataset: Any = mdsx.Dataset(url)
    batches = list(DataLoader(dataset, batch_size=4, num_workers=workers, collate_fn=collate))
    assert [batch["id"].tolist() for batch in batches] == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert batches[0]["flag"].dtype == torch.bool
    assert batches[0]["meta"] == [{"page": 0}, None, {"page": 2}, None]
    assert [data.tolist() for data in batches[0]["data"]] == [[], [1.0], [2.0, 2.0], []]
    assert batches[0]["text"] == ["t"] * 4
    assert batches[0]["raw"] == [b"raw", None, None, b"raw"]


def test_collate_is_the_default_after_a_transform(url: str) -> None:
    data = StreamingDataset(url, shuffle=False, transform=lambda sample: sample)
    batch = next(iter(StreamingDataLoader(data, 4)))
    assert batch["id"].tolist() == [0, 1, 2, 3]
    assert batch["meta"] == [{"page": 0}, None, {"page": 2}, None]
