"""What mdsx must return for a cell of a Parquet file, from pyarrow's own reading of the file."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import mdsx


def check_cells(folder: Path, dataset: mdsx.Dataset) -> None:
    """Compare every sample of `dataset` with the rows of the files in `folder`."""
    files = sorted(path for path in folder.rglob("*.parquet") if not path.name.startswith((".", "_")))
    rows = [row for path in files for row in rows_of(path)]
    samples = list(dataset)
    assert len(samples) == len(rows) == len(dataset)
    for number, (sample, row) in enumerate(zip(samples, rows, strict=True)):
        assert sample.keys() == row.keys()
        for name in row:
            assert plain(sample[name]) == row[name], f"row {number}, column {name!r}"


def rows_of(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a Parquet file, as mdsx must return them."""
    file = pq.ParquetFile(path, coerce_int96_timestamp_unit="us")
    columns = {
        name: values_of(column) for name, column in zip(file.schema_arrow.names, file.read().columns, strict=True)
    }
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def values_of(column: Any) -> list[Any]:
    kind = column.type
    if isinstance(kind, pa.BaseExtensionType):
        return values_of(pa.chunked_array([chunk.storage for chunk in column.chunks], kind.storage_type))
    if pa.types.is_dictionary(kind):
        return values_of(column.cast(kind.value_type))
    if pa.types.is_temporal(kind):
        wide = pa.int32() if kind.bit_width == 32 else pa.int64()
        found: list[Any] = column.cast(wide).to_pylist()
        return found
    if pa.types.is_struct(kind) and {field.name for field in kind} == {"bytes", "path"}:
        return [None if value is None else value["bytes"] for value in column.to_pylist()]
    return [_value(value, kind) for value in column.to_pylist()]


def _value(value: Any, kind: Any) -> Any:
    """Return a value as plain Python objects, with maps as dicts."""
    if value is None:
        return None
    if pa.types.is_map(kind):
        return {key: _value(item, kind.item_type) for key, item in value}
    if pa.types.is_struct(kind):
        return {field.name: _value(value[field.name], field.type) for field in kind}
    if hasattr(kind, "value_type"):
        return [_value(item, kind.value_type) for item in value]
    if pa.types.is_floating(kind):
        return None if np.isnan(value) else float(value)  # NaN differs from itself
    return str(value) if isinstance(value, Decimal) else value


def plain(value: Any) -> Any:
    """Return a value of a sample as plain Python objects."""
    if isinstance(value, np.ndarray | np.generic):
        return plain(value.tolist())
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    return None if isinstance(value, float) and np.isnan(value) else value
