"""Where a sample is from, its seed, and which transforms get a generator."""

from __future__ import annotations

import functools
import operator
from typing import Any

import numpy as np
import pytest

from mdsx.order.hashing import key
from mdsx.stream import generator, info_columns, info_records, takes_generator

FIELDS = np.array([[3, 10, 0, 7, -1], [3, 11, 1, 9, 5]])


def test_fields_are_columns_or_records() -> None:
    columns = info_columns(FIELDS)
    assert {name: values.tolist() for name, values in columns.items()} == {
        "epoch": [3, 3],
        "position": [10, 11],
        "dataset": [0, 1],
        "sample": [7, 9],
        "seed": [2**64 - 1, 5],
    }
    assert [str(values.dtype) for values in columns.values()] == ["int64"] * 4 + ["uint64"]
    assert info_records(FIELDS) == [
        {"epoch": 3, "position": 10, "dataset": 0, "sample": 7, "seed": 2**64 - 1},
        {"epoch": 3, "position": 11, "dataset": 1, "sample": 9, "seed": 5},
    ]


class Callable:
    def __call__(self, sample: Any, rng: Any) -> Any: ...

    def method(self, sample: Any) -> Any: ...


def keyword_only(sample: Any, *, rng: Any) -> Any: ...


@pytest.mark.parametrize(
    ("transform", "expected"),
    [
        (lambda sample, rng: 0, True),
        (lambda sample, rng, /: 0, True),
        (lambda sample, rng, strength=1: 0, True),
        (lambda sample, rng, *more, **options: 0, True),
        (functools.partial(lambda sample, rng, size: 0, size=3), True),
        (functools.partial(lambda sample, rng: 0), True),
        (Callable(), True),
        (operator.add, True),  # a builtin with a signature
        (lambda sample: 0, False),
        (lambda sample, size=3: 0, False),
        (lambda *samples: 0, False),
        (lambda sample, *rng: 0, False),
        (functools.partial(lambda size, sample: 0, 3), False),
        (functools.partial(lambda sample, rng: 0, rng=3), False),
        (keyword_only, False),
        (Callable().method, False),
        (dict, False),  # no signature
        (lambda sample, rng, more: 0, False),
    ],
)
def test_two_required_parameters_take_a_generator(transform: Any, expected: bool) -> None:
    assert takes_generator(transform) is expected


def test_the_generator_is_that_of_the_documentation() -> None:
    seed = key(7, 8, 0, 0)
    expected = np.random.Generator(np.random.PCG64(seed)).bit_generator.random_raw(3).tolist()
    assert generator(seed).bit_generator.random_raw(3).tolist() == expected
    assert generator(seed).spawn(1)[0].integers(2**62) == generator(seed).spawn(1)[0].integers(2**62)
