"""Pointer shards: what is refused when they are made, and when they are read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import xxhash

import mdsx
from mdsx.foreign.tars import TarsFormat, build_text
from mdsx.foreign.tars.pointers import Pointer, PointerBuilder, PointerSchema
from mdsx.foreign.tars.text import IndexedTar
from mdsx.format import Encoder, Refused, Schema, ShardBuilder, ShardView
from tests.foreign.tars.indexed import pointers_of, tar_of

COLUMNS = {"__key__": "str", "a": "float32[2]", "t": "uint8[*]", "b": "bytes", "n": "str?", "cls": "int64"}
SCHEMA = PointerSchema(Schema.from_columns(COLUMNS))
SAMPLES = [
    {"__key__": None, "a": [1, 2], "t": [1, 2, 3], "b": b"bytes", "n": None if k else "n", "cls": k} for k in range(3)
]
TAR = tar_of(COLUMNS, SAMPLES)


def test_a_pointer_that_is_not_in_its_sample_or_not_of_its_column_is_refused() -> None:
    schema = PointerSchema(Schema.from_columns({"a": "float32[2]", "b": "bytes", "n": "int8"}))
    right = {"a": Pointer(100, 108, (2,)), "b": Pointer(50, 60), "n": 3}
    PointerBuilder(schema).add(0, 200, 0, right)
    for wrong in (
        {"a": Pointer(100, 108, (2, 1))},
        {"a": Pointer(100, 109, (2,))},
        {"a": None},
        {"n": 300},
        {"n": None},
    ):
        with pytest.raises(Refused):
            PointerBuilder(schema).add(0, 200, 0, {**right, **wrong})
    for outside in (Pointer(150, 201), b"bytes"):
        with pytest.raises(mdsx.UsageError):
            PointerBuilder(schema).add(0, 200, 0, {**right, "b": outside})
    builder = PointerBuilder(schema)
    builder.add(0, 200, 0, right)
    with pytest.raises(mdsx.UsageError, match="overlaps"):
        builder.add(199, 300, 0, right)
    with pytest.raises(mdsx.UsageError, match="cannot be read in place"):
        PointerBuilder(PointerSchema(Schema.from_columns({"a": "str[*]"})))


def hostile(change: Callable[[np.ndarray[Any, Any]], object]) -> bytes:
    """Return pointers whose rows were changed, with all checksums right."""
    view = ShardView.parse(pointers_of(COLUMNS, SAMPLES, TAR))
    rows = view.rows.copy()
    change(rows)
    columns: dict[str, Any] = {}
    for number, column in enumerate(view.schema.columns):
        if column.type.fixed_size:
            columns[column.name] = rows[f"column{number}"]
        else:
            ends = np.cumsum(rows["lengths"], axis=1, dtype=np.int64) + rows["start"][:, None].astype(np.int64)
            place = view.schema.variable.index(number)
            columns[column.name] = [
                bytes(view.heap[end - size : end])
                for end, size in zip(ends[:, place].tolist(), rows["lengths"][:, place].tolist(), strict=True)
            ]
    builder = ShardBuilder(view.schema, 2**40)
    builder.add(Encoder(view.schema).batch(columns))
    return bytes(builder.finish())


def index_with(pointers: bytes, *, samples: int = 3) -> mdsx.format.StoredIndex:
    hash = xxhash.xxh3_128_hexdigest(TAR)
    entry = IndexedTar("0.tar", len(TAR), "", hash, samples, "p", len(pointers), xxhash.xxh3_128_hexdigest(pointers))
    index = TarsFormat().parse_index(build_text(SCHEMA.dataset, [entry]), file="i")
    return index.with_side_object(0, pointers, file="p")


def read(index: mdsx.format.StoredIndex) -> None:
    opened = index.open(0, TAR, file="0.tar")
    samples = np.arange(3)
    selection = opened.select(samples, verify=False)
    selection.layout.copied(selection)
    decoder = index.decoder({name: number for number, name in enumerate(COLUMNS)})
    for sample in range(3):
        decoder.decode(opened, sample, verify=False)


def test_the_right_pointers_are_read() -> None:
    read(index_with(hostile(lambda rows: None)))


START, SIZE, EXTENTS = "column0", "column2", "column3"
A, T, B, N = 1, 2, 3, 4


@pytest.mark.parametrize(
    ("field", "at", "value"),
    [
        (START, 0, 2**64 - 1),
        (START, 0, len(TAR)),
        (START, 2, 0),
        (START, 1, 5),
        (SIZE, 0, 2**32 - 1),
        (SIZE, 0, 6000),
        (SIZE, 0, 10),
        (EXTENTS, (1, A, 0), 2**32 - 1),
        (EXTENTS, (1, A, 1), 7),
        (EXTENTS, (1, A, 1), 2**32 - 1),
        (EXTENTS, (1, B, 0), 10**6),
        (EXTENTS, (1, B, 1), 10**6),
        (EXTENTS, (1, B, 1), 2**32 - 1),
        (EXTENTS, (1, T, 1), 2**32 - 2),
        (EXTENTS, (1, T, 0), 2**32 - 1),
    ],
)
def test_pointers_out_of_their_tar_or_sample_are_refused(field: str, at: Any, value: int) -> None:
    def change(rows: np.ndarray[Any, Any]) -> None:
        rows[field][at] = value

    with pytest.raises(mdsx.CorruptError):
        read(index_with(hostile(change)))


def test_pointers_of_another_number_of_samples_or_other_columns_are_refused() -> None:
    with pytest.raises(mdsx.CorruptError, match="number of samples differs"):
        index_with(hostile(lambda rows: None), samples=2)
    other = {**COLUMNS, "cls": "int32"}
    with pytest.raises(mdsx.CorruptError):
        index_with(pointers_of(other, SAMPLES, TAR))
