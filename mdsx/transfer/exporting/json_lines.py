"""JSON lines: one object per sample, in UTF-8, with the columns in order. Null is null.

Arrays and lists become lists, floats the shortest text that restores them, and `json` and `msgpack` columns their
values. JSON lacks bytes, which become base64 text, and NaN and infinities, which are errors or become null.
"""

from __future__ import annotations

import math
import shlex
import zlib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from io import BytesIO
from typing import Any, Literal, Protocol

import msgpack
import msgspec
import numpy as np
import zstandard
from numpy.typing import NDArray

from mdsx.format import MSGPACK, ColumnType, Refused, Schema, check_empty_lists
from mdsx.shards import Columns
from mdsx.transfer.exporting.kinds import misfit

Nan = Literal["error", "null"]
_GZIP = 16 + zlib.MAX_WBITS  # gzip, with a header without a time
_encoder = msgspec.json.Encoder()


@dataclass(frozen=True)
class JsonLines:
    """JSON lines of the columns of `schema`, of the dataset `url`. `compression`: "none", "gzip" or "zstd", and its
    level."""

    schema: Schema
    nan: Nan
    compression: tuple[str, int]
    url: str

    joined = False

    @property
    def suffix(self) -> str:
        return ".jsonl" + {"none": "", "gzip": ".gz", "zstd": ".zst"}[self.compression[0]]

    @property
    def options(self) -> Mapping[str, str]:
        return {"nan": self.nan, "compression": ":".join(map(str, self.compression))}

    def forms(self) -> dict[str, str]:
        return {column.name: _form(column.type) for column in self.schema.columns}

    def file(self) -> JsonLinesFile:
        return JsonLinesFile(self)


class JsonLinesFile:
    """A file of JSON lines that is being made."""

    def __init__(self, kind: JsonLines) -> None:
        self._kind, self._out = kind, BytesIO()
        self._compressor = _compressor(*kind.compression)

    def add(self, columns: Columns, first: int) -> None:
        schema, compressor = self._kind.schema, self._compressor
        names = [column.name for column in schema.columns]
        values = [self._values(column.name, column.type, columns[column.name], first) for column in schema.columns]
        for sample in zip(*values, strict=True):
            line = _encode(dict(zip(names, sample, strict=True)))
            self._out.write(line if compressor is None else compressor.compress(line))

    def finish(self) -> memoryview:
        if self._compressor is not None:
            self._out.write(self._compressor.flush())
        return self._out.getbuffer()

    def _values(self, name: str, kind: ColumnType, values: Any, first: int) -> list[Any]:
        """Return a column's values in a form for msgspec. `first`: the number of their first sample."""
        nan_null, number = self._kind.nan == "null", 0
        try:
            if isinstance(values, np.ndarray):
                if (finite := _finite(values)) is not None and not nan_null:
                    number = int(finite.reshape(len(values), -1).all(axis=1).argmin())
                check_empty_lists(values.shape[1:])  # of each sample
                found: list[Any] = _listed(values, nan_null)
                return found
            if kind.foreign is None and not kind.scalar and kind.base != MSGPACK.name:
                found = list(values)
                if kind.kind != "document" or b"null" not in _encoder.encode(
                    found
                ):  # so there is no infinity, as of 1e999
                    return found
            found = []
            for number, value in enumerate(values):  # noqa: B007  # for the error
                found.append(_plain(value, nan_null))
            return found
        except Refused as refused:
            hint = refused.hint or f"--drop {shlex.quote(name)} leaves the column out"
            problem, found_text = "JSON cannot hold the value", str(refused.found)
            raise misfit(
                self._kind.url, first + number, name, problem, found=found_text, expected=refused.expected, hint=hint
            ) from None


def _form(kind: ColumnType) -> str:
    """Return how a column is written."""
    if kind.scalar:
        return "true or false" if kind.kind == "bool" and kind.shape is None else "a list" if kind.shape else "a number"
    if kind.kind in (None, "document") and not kind.is_list:
        return "its value"
    form = {"text": "text", "document": "its value"}.get(kind.kind or "", "base64 text")
    return f"a list, each {form}" if kind.is_list else form


# --- values


def _plain(value: Any, nan_null: bool) -> Any:
    """Return a value in a form for msgspec, without NaN and infinities. Raise Refused.

    It does not call itself: values may be nested more deeply than Python's stack allows.
    """
    whole = _plain_item(value, nan_null)
    inside: list[Any] = [whole] if isinstance(value, list | dict) else []
    while inside:
        parent = inside.pop()
        for place, item in parent.items() if isinstance(parent, dict) else enumerate(parent):
            parent[place] = found = _plain_item(item, nan_null)
            if isinstance(item, list | dict):
                inside.append(found)
    return whole


def _plain_item(value: Any, nan_null: bool) -> Any:
    """Return a value in a form for msgspec; of a list or a dict, a copy with items still in other forms."""
    if value is None or isinstance(value, str | bytes | bool | int):
        return value
    if isinstance(value, np.ndarray | np.generic):
        check_empty_lists(value.shape)
        return _listed(value, nan_null)
    if isinstance(value, float):
        return value if math.isfinite(value) else _not_finite(value, nan_null)
    if isinstance(value, list):
        return [*value]
    if isinstance(value, dict):
        for key in value:
            if not isinstance(key, str):
                raise Refused("maps whose keys are text", repr(key)[:40])
        return {**value}
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, msgpack.Timestamp) and value.nanoseconds % 1000 == 0:
        with suppress(OverflowError, ValueError):
            return value.to_datetime()
    raise Refused("what JSON has", f"{type(value).__name__} {value!r}"[:80])


def _listed(values: Any, nan_null: bool) -> Any:
    """Return an array as lists, or a NumPy scalar as a number. Raise Refused."""
    if values.dtype.kind not in "biuf":
        raise Refused("numbers", values.dtype)
    if (finite := _finite(values)) is None:
        return values.tolist()
    _not_finite(np.asarray(values)[~finite][0], nan_null)
    found = np.asarray(values).astype(object)
    found[~finite] = None
    return found.tolist()


def _finite(values: Any) -> NDArray[np.bool_] | None:
    """Return which of the values are neither NaN nor infinite; None if all are."""
    if values.dtype.kind != "f":
        return None
    finite = np.asarray(np.isfinite(values))
    return None if finite.all() else finite


def _not_finite(value: Any, nan_null: bool) -> None:
    if not nan_null:
        raise Refused("a finite number", value, hint="--nan null (nan='null') writes null instead")


def _encode(line: dict[str, Any]) -> bytes:
    return _encoder.encode(line) + b"\n"


# --- compression


class Compressor(Protocol):
    """The methods that the compressors of zlib and zstandard share."""

    def compress(self, data: bytes, /) -> bytes: ...
    def flush(self) -> bytes: ...


def _compressor(name: str, level: int) -> Compressor | None:
    if name == "none":
        return None
    if name == "gzip":
        return zlib.compressobj(level, wbits=_GZIP)
    return zstandard.ZstdCompressor(level=level, write_checksum=True).compressobj()
