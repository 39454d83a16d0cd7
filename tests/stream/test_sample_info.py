"""Where a sample is from, and its seed."""

from __future__ import annotations

import numpy as np

from mdsx.order import key
from mdsx.stream import generator, info_columns, info_records

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


def test_the_generator_is_that_of_the_documentation() -> None:
    seed = key(7, 8, 0, 0)
    expected = np.random.Generator(np.random.PCG64(seed)).bit_generator.random_raw(3).tolist()
    assert generator(seed).bit_generator.random_raw(3).tolist() == expected
    assert generator(seed).spawn(1)[0].integers(2**62) == generator(seed).spawn(1)[0].integers(2**62)
