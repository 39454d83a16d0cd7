"""Batches are cut without a copy, into the same samples."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from mdsx.foreign.arrow.slices import slices

TABLE = pa.table({"number": range(100), "bytes": [bytes(number) for number in range(100)]})  # 6.6 kB
KINDS = {
    "table": TABLE,
    "chunks": pa.concat_tables([TABLE.slice(0, 7), TABLE.slice(7)]),
    "part of a table": pa.concat_tables([TABLE, TABLE]).slice(100),
    "record batch": TABLE.combine_chunks().to_batches()[0],
    "mapping": dict(zip(TABLE.column_names, TABLE.columns, strict=True)),
}


def values(batches: list[Any], name: str) -> list[Any]:
    return [value for batch in batches for value in batch[name].to_pylist()]


@pytest.mark.parametrize("most", [1, 100, 1000, 6000])
@pytest.mark.parametrize("kind", KINDS)
def test_slices_have_all_samples_in_order(kind: str, most: int) -> None:
    found = list(slices(KINDS[kind], most))
    for name in TABLE.column_names:
        assert values(found, name) == TABLE[name].to_pylist()
    sizes = [sum(column.nbytes for column in (each["number"], each["bytes"])) for each in found]
    assert all(size < 2 * most + 200 for size in sizes)  # the largest sample is twice the mean
    assert len(found) == (100 if most == 1 else len(sizes)) > 1


@pytest.mark.parametrize("kind", KINDS)
def test_a_small_batch_is_not_cut(kind: str) -> None:
    assert list(slices(KINDS[kind], 10_000)) == [KINDS[kind]]


@pytest.mark.parametrize(
    "batch",
    [
        {},
        {"number": [1, 2]},
        {"number": TABLE["number"], "list": [1, 2]},
        {"number": TABLE["number"], "bytes": TABLE["bytes"][:7]},  # an error of the writer's
        TABLE[:0],
        TABLE.select([]),
    ],
)
def test_other_batches_are_yielded_as_they_are(batch: Any) -> None:
    (found,) = slices(batch, 0)
    assert found is batch


def test_slices_share_the_memory_of_the_batch() -> None:
    before = pa.total_allocated_bytes()
    found = list(slices(TABLE, 100))
    assert pa.total_allocated_bytes() == before
    assert found
