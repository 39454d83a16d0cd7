"""What an attempt writes depends on its samples alone, not on the batches that the engine passes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from mdsx.writer import Writer, parts, write_part
from mdsx.writer.runs.job import WriteJob

COLUMNS = {"number": "int64", "name": "str?", "picture": "bytes?", "items": "int32[*]"}
SAMPLES = 500
TABLE = pa.table(
    {
        "number": range(SAMPLES),
        "name": [None if number % 7 == 0 else f"name {number}" for number in range(SAMPLES)],
        "picture": [None if number % 5 == 0 else bytes([number % 251]) * (number * 37) for number in range(SAMPLES)],
        "items": pa.array([list(range(number % 11)) for number in range(SAMPLES)], pa.list_(pa.int32())),
    }
)


def written(folder: Path, batches: Iterator[Any]) -> list[bytes]:
    done = write_part(WriteJob(str(folder), COLUMNS, 100_000, None, "0" * 16), 0, batches)
    assert done.samples == SAMPLES
    return [path.read_bytes() for path in sorted(folder.glob(f"{done.folder}/*.mdsx"))]


@pytest.mark.slow_if("(rows, slice_size) not in {(1, 10_000), (64, 1), (SAMPLES, 2**24)}")
@pytest.mark.parametrize("slice_size", [1, 10_000, 2**24])
@pytest.mark.parametrize("rows", [1, 64, SAMPLES])
def test_equal_samples_make_equal_bytes_whatever_the_batches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: int, slice_size: int
) -> None:
    monkeypatch.setattr(parts, "SLICE", 2**40)
    expected = written(tmp_path / "whole", iter([TABLE]))
    assert len(expected) > 10
    monkeypatch.setattr(parts, "SLICE", slice_size)
    assert written(tmp_path / "tables", (TABLE[start : start + rows] for start in range(0, SAMPLES, rows))) == expected
    mappings = (
        dict(zip(COLUMNS, TABLE[start : start + rows].columns, strict=True)) for start in range(0, SAMPLES, rows)
    )
    assert written(tmp_path / "mappings", mappings) == expected


def test_a_large_batch_is_encoded_slice_by_slice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = []
    write_batch = Writer.write_batch

    def counted(writer: Any, batch: Any) -> None:
        sizes.append(batch.nbytes)
        write_batch(writer, batch)

    monkeypatch.setattr(Writer, "write_batch", counted)
    monkeypatch.setattr(parts, "SLICE", 100_000)
    written(tmp_path, iter([TABLE]))
    assert sum(sizes) >= TABLE.nbytes > 30 * 100_000
    assert max(sizes) < 3 * 100_000
