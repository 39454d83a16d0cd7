"""Checksums of many rows at once are those of each row by itself."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import xxhash

from mdsx.errors import CorruptError
from mdsx.format import Schema
from mdsx.format.rows import check_row_key, cut, row_checksums, row_key

BYTES = np.random.default_rng(1).bytes(20_000)


def expected(rows: bytes, row_size: int, heaps: list[bytes], first: int) -> list[int]:
    """Return the checksums by the specification."""
    bodies = [rows[at + 8 : at + row_size] for at in range(0, len(rows), row_size)]
    covered = [body + heap for body, heap in zip(bodies, heaps, strict=True)]
    return [xxhash.xxh3_64_intdigest(data, first + number) for number, data in enumerate(covered)]


@pytest.mark.parametrize("row_size", [8, 16, 504, 512, 1600])
def test_rows_without_heap_bytes(row_size: int) -> None:
    rows = BYTES[: 3 * row_size]
    found = row_checksums(np.frombuffer(rows, np.uint8), row_size, None, heap_size=0, first=5)
    assert found.tolist() == expected(rows, row_size, [b""] * 3, 5)
    assert found.dtype == np.uint64


@pytest.mark.parametrize("sizes", [[3, 0, 90], [5000, 2, 3000], [0, 0, 0]])
@pytest.mark.parametrize("row_size", [24, 1600])
def test_rows_with_heap_bytes(row_size: int, sizes: list[int]) -> None:
    rows, stops = BYTES[: 3 * row_size], np.cumsum(sizes)
    heaps = [BYTES[stop - size : stop] for stop, size in zip(stops.tolist(), sizes, strict=True)]
    numbers, total = np.frombuffer(rows, np.uint8), sum(sizes)
    checksums = expected(rows, row_size, heaps, 5)
    assert row_checksums(numbers, row_size, heaps, heap_size=total, first=5).tolist() == checksums
    pieces = [piece for heap in heaps for piece in (heap[:2], heap[2:])]
    assert row_checksums(numbers, row_size, pieces, heap_size=total, first=5, width=2).tolist() == checksums


@pytest.mark.parametrize("sizes", [[3, 0, 90], [5000, 2, 3000], [3, 0, 1] * 3000, []])
def test_heap_bytes_are_cut_by_sample(sizes: list[int]) -> None:
    stops = np.cumsum(sizes, dtype=np.int64)
    heap = BYTES[: sum(sizes)]
    pieces = [heap[start:stop] for start, stop in pairwise([0, *stops.tolist()])]
    assert list(map(bytes, cut(heap, stops))) == pieces


def test_a_wrong_row_key_is_shown() -> None:
    schema = Schema.from_columns({"id": "uint8"})
    rows = np.zeros(2, schema.row_dtype)
    rows["checksum"] = [1, 2]
    right = xxhash.xxh3_64_intdigest(schema.json + bytes([4, *bytes(7), 7, *bytes(7)]))
    assert row_key(schema, np.array([4, 7], np.uint64)) == right
    with pytest.raises(CorruptError, match="the rows are damaged") as caught:
        check_row_key(schema, rows, 5, "x")  # 1 ^ 5 is 4, 2 ^ 5 is 7
    error = caught.value
    assert (error.file, error.place) == ("x", "row key")
    assert (error.found, error.expected) == (f"{right:016x}", "0000000000000005")
