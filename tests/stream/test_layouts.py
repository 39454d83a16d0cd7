"""Pack and MaxTokens: what they refuse, and what they make of their arguments."""

from __future__ import annotations

import pickle
from dataclasses import FrozenInstanceError
from typing import Any

import numpy as np
import pytest
import torch

import mdsx
from mdsx.order import Grouping
from mdsx.stream import RankGroups

BOTH = [mdsx.Pack, mdsx.MaxTokens]


@pytest.mark.parametrize("kind", BOTH)
@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"capacity": 0}, "capacity is out of range"),
        ({"capacity": 2**31}, "capacity is out of range"),
        ({"capacity": True}, "capacity must be an integer"),
        ({"capacity": "4096"}, "capacity must be an integer"),
        ({"window": 0}, "window is out of range"),
        ({"window": 2.0}, "window must be an integer"),
        ({"oversize": "drop"}, "oversize is unknown"),
        ({"length": [0.5]}, "array of integers"),
        ({"length": [[1]]}, "array of integers"),
        ({"length": None}, "array of integers"),
        ({"length": [3, -1]}, r"length\[1\] is out of range"),
        ({"length": [2**32]}, r"length\[0\] is out of range"),
        ({"pad_value": None}, "a pad value must be a number"),
        ({"pad_value": {"labels": "-100"}}, "pad_value of column 'labels': a pad value must be a number"),
        ({"dtypes": {"tokens": "long"}}, "dtypes, column 'tokens': unknown type of numbers"),
        ({"dtypes": {"tokens": "str"}}, "unknown type of numbers"),
        ({"dtypes": {"tokens": "uint16[2]"}}, "unknown type of numbers"),
        ({"dtypes": {"tokens": 3}}, "unknown type of numbers"),
        ({"dtypes": "int64"}, "dtypes must be a mapping"),
        (
            {"dtypes": {"t": "uint16"}, "pad_value": {"t": -100}},
            "column 't', type 'uint16': the pad value does not fit",
        ),
        ({"dtypes": {"t": "int8"}, "pad_value": 0.5}, "the pad value does not fit"),
    ],
)
def test_an_invalid_argument_is_a_usage_error(kind: type[Any], given: dict[str, Any], message: str) -> None:
    arguments = {"capacity": 4096, "length": "tokens"} | given
    with pytest.raises(mdsx.UsageError, match=message):
        kind(arguments.pop("capacity"), **arguments)


def test_what_only_one_of_them_has_is_checked() -> None:
    with pytest.raises(mdsx.UsageError, match="layout must be"):
        mdsx.Pack(8, length="x", layout="columns")  # type: ignore[arg-type]
    with pytest.raises(mdsx.UsageError, match=r"oversize is unknown \(expected 'error', 'truncate', found 'split'\)"):
        mdsx.MaxTokens(8, length="x", oversize="split")  # type: ignore[arg-type]
    with pytest.raises(mdsx.UsageError, match="max_samples is out of range"):
        mdsx.MaxTokens(8, length="x", max_samples=0)
    with pytest.raises(mdsx.UsageError, match=r"must divide the capacity \(found 3 for a capacity of 8\)"):
        mdsx.MaxTokens(8, length="x", pad_to_multiple_of=3)


@pytest.mark.parametrize("kind", BOTH)
def test_types_are_given_by_name_or_by_numpy_or_torch(kind: type[Any]) -> None:
    dtypes = {"a": "int64", "b": np.int32, "c": np.dtype("float16"), "d": torch.bfloat16, "e": np.bool_, "f": "bool"}
    names = {"a": "int64", "b": "int32", "c": "float16", "d": "bfloat16", "e": "bool", "f": "bool"}
    assert kind(8, length="a", dtypes=dtypes).dtypes == names
    assert kind(8, length="a").dtypes == {}


@pytest.mark.parametrize("kind", BOTH)
def test_a_layout_is_a_value_that_can_be_pickled(kind: type[Any]) -> None:
    lengths, pads = np.array([3, 2], np.uint32), {"labels": -100}
    layout = kind(np.int64(8), length=lengths, pad_value=pads)
    lengths[0], pads["labels"] = 7, 0
    for each in (layout, pickle.loads(pickle.dumps(layout))):
        assert (each.capacity, each.length.tolist(), each.pad_value) == (8, [3, 2], {"labels": -100})
    with pytest.raises(FrozenInstanceError):
        layout.capacity = 9
    with pytest.raises(ValueError, match="read-only"):
        layout.length[0] = 1


def test_groups_without_some_samples_keep_their_rows() -> None:
    groups = RankGroups(np.array([0, 2, 3, 5]), np.arange(30).reshape(6, 5), 9, 40)
    found = groups.kept(np.array([1, 3]))
    assert found.items.tolist() == [[1, 3], [6, 8], [11, 13], [16, 18], [21, 23], [26, 28]]
    assert found.edges.tolist() == [0, 1, 1, 2]
    assert (found.step_samples, found.step_values) == (9, 40)
    assert groups.kept(np.zeros(0, np.int64)).edges.tolist() == [0, 0, 0, 0]


def test_a_layout_says_how_samples_are_grouped() -> None:
    assert mdsx.Pack(4096, length="x", oversize="split").grouping(1000.0) == Grouping("pack", 4096, 2048, "split")
    assert mdsx.Pack(2**17, length="x").grouping(1000.0).window == 32768
    assert mdsx.Pack(2**17, length="x", window=100).grouping(None).window == 100
    rule = mdsx.MaxTokens(65536, length="x", max_samples=9).grouping(None)
    assert rule == Grouping("max_tokens", 65536, 2048, max_samples=9)
