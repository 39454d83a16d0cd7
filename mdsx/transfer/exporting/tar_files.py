"""WebDataset tars: each value becomes a member `KEY.COLUMN`, in the form that `mdsx convert tar` reads.

The key is the column `__key__`, or the sample's number. Readers must be able to split the name into key and column. No
key may occur twice in a tar: a reader would take the two samples for one, or lose one. Headers have no times or owners.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import lru_cache
from io import BytesIO
from typing import Any

import numpy as np
from numpy.lib import format as npy_format
from numpy.typing import NDArray

from mdsx.errors import SampleError, UsageError
from mdsx.foreign.tars import KEY, Names, is_hidden, printable, type_of_extension
from mdsx.format import JSON, STR, ColumnType, Refused, Schema
from mdsx.shards import Columns
from mdsx.transfer.exporting.kinds import misfit

_BLOCK, _RECORD, _NAME = 512, 10_240, 100
_NOBODY = b"0000000\0"
_LONGEST_KEY = 2**15  # bytes
_json = JSON.encoder()

Write = Callable[[Any], bytes | memoryview]


@dataclass(frozen=True)
class Tars:
    """Tars of the columns of `schema`, of the dataset `url` with `samples` samples."""

    schema: Schema
    names: Names
    url: str
    samples: int

    suffix = ".tar"
    joined = False

    @property
    def options(self) -> Mapping[str, str]:
        return {"key_until": self.names.key_until}

    def check(self) -> None:
        """Raise UsageError for a column that members cannot hold, or whose name would not survive."""
        members = [column for column in self.schema.columns if column.name != KEY]
        if not members:
            raise UsageError("a tar needs a column besides the key", file=self.url)
        for column in self.schema.columns:
            name, place = column.name, f"column {column.name!r}"
            if name == KEY:
                if str(column.type) != STR.name:
                    hint = f"to make keys from the samples' numbers, give --drop {KEY} (drop=[{KEY!r}])"
                    raise UsageError(
                        f"keys must have type {STR.name}", file=self.url, place=place, found=column.type, hint=hint
                    )
                continue
            found = self.names.split(f"0.{name}")
            if found != ("0", name) or "/" in name:
                hint = f"--rename {shlex.quote(f'NEW={name}')} (rename={{NEW: {name!r}}}) gives it another name"
                message = "the column's name is not an extension: members with this name would become another column"
                raise UsageError(message, file=self.url, place=place, found=found[1] or None, hint=hint)
            if column.type.is_list and not column.type.object.textual:
                hint = f"--drop {shlex.quote(name)} (drop=[{name!r}]) leaves it out; Parquet can hold it"
                message = "a tar cannot hold lists of bytes"
                raise UsageError(message, file=self.url, place=place, found=column.type, hint=hint)

    def forms(self) -> dict[str, str]:
        return {column.name: _form(column.name, column.type) for column in self.schema.columns}

    def file(self) -> TarFile:
        return TarFile(self)


class TarFile:
    """A tar that is being made."""

    def __init__(self, kind: Tars) -> None:
        self._kind, self._out = kind, BytesIO()
        self._writers = {
            each.name: (writer_of(each.type), each.type.nullable) for each in kind.schema.columns if each.name != KEY
        }
        self._keys: dict[str, int] = {}  # key -> the sample's number
        self._digits = max(6, len(str(kind.samples - 1)))

    def add(self, columns: Columns, first: int) -> None:
        values = [columns[name] for name in self._writers]
        keys = columns.get(KEY)
        for place, sample in enumerate(zip(*values, strict=True)):
            number = first + place
            key = f"{number:0{self._digits}}" if keys is None else keys[place]
            self._check_key(key, number)
            before = self._out.tell()
            for (name, (write, nullable)), value in zip(self._writers.items(), sample, strict=True):
                if value is not None or not nullable:  # None is also a JSON value
                    try:
                        data = write(value)
                    except Refused as refused:
                        raise self._misfit(number, name, refused) from None
                    self._put(f"{key}.{name}", data)
            if self._out.tell() == before:
                message = "all values of the sample are null, so it would have no member in the tar, and be lost"
                hint = "also export a column without nulls"
                raise SampleError(message, file=self._kind.url, place=f"sample {number}", hint=hint)

    def finish(self) -> memoryview:
        self._out.write(bytes(2 * _BLOCK + -(self._out.tell() + 2 * _BLOCK) % _RECORD))
        return self._out.getbuffer()

    def _put(self, name: str, data: bytes | memoryview) -> None:
        write = self._out.write
        write(tar_header(name, len(data)))
        write(data)
        write(bytes(-len(data) % _BLOCK))

    def _check_key(self, key: str, number: int) -> None:
        names, name = self._kind.names, f"{key}.x"
        if (earlier := self._keys.setdefault(key, number)) != number:
            hint = (
                f"to make keys from the samples' numbers, give --drop {KEY}; or put such samples into different tars "
                "with --file-samples"
            )
            raise self._bad_key(key, number, f"sample {earlier} of the same tar has the same key", hint)
        if names.split(name)[0] != key:
            raise self._bad_key(key, number, "the key has a dot, where readers would end it", "--key-until last-dot")
        if is_hidden(name) or "\0" in key or len(key) > _LONGEST_KEY:
            hint = f"to make keys from the samples' numbers, give --drop {KEY}"
            raise self._bad_key(key, number, "the key results in a name that readers do not accept", hint)

    def _bad_key(self, key: str, number: int, problem: str, hint: str) -> SampleError:
        return misfit(self._kind.url, number, KEY, problem, found=printable(key[:100]), hint=hint)

    def _misfit(self, number: int, name: str, refused: Refused) -> SampleError:
        hint = refused.hint or f"--drop {shlex.quote(name)} leaves the column out"
        problem = "a tar cannot hold the value"
        found, expected = str(refused.found), refused.expected
        return misfit(self._kind.url, number, name, problem, found=found, expected=expected, hint=hint)


# --- values


def writer_of(kind: ColumnType) -> Write:
    """Return a function that makes a member's bytes from a value that is not null. It may raise Refused."""
    if kind.base == JSON.name or kind.is_list:
        return _json
    if kind.foreign is not None:
        return _any
    if kind.scalar:
        return npy_bytes if kind.shape is not None else _text
    return bytes if kind.kind == "bytes" else kind.object.encoder()


def _form(name: str, kind: ColumnType) -> str:
    """Return how a column is written, and the option with which `mdsx convert tar` restores its type or values."""
    if name == KEY:
        return "the key"
    if kind.base == JSON.name or kind.is_list:
        form = JSON.form
    elif kind.foreign is not None:
        form = "its value"
    elif kind.scalar and kind.shape is not None:
        form = "a NumPy file"
        if not kind.number.native:  # NumPy cannot store it
            kind = replace(kind, base=kind.number.numpy(np.empty(0, kind.number.item)).dtype.name)
            form = f"a NumPy file of {kind.base}"
    elif kind.scalar:
        form = "a number as text"
    else:
        form = kind.object.form
    inferred = type_of_extension(name)
    return form if str(kind) == inferred or kind.foreign is not None else f"{form}; back with --column '{name}={kind}'"


def _text(value: Any) -> bytes:
    """Return a number's canonical text: an integer's digits, a float's shortest exact decimal, 0 or 1 for a bool."""
    if isinstance(value, bool | np.bool_):
        return b"1" if value else b"0"
    number = value.item() if isinstance(value, np.generic) else value
    return repr(number).encode()


def npy_bytes(array: NDArray[Any]) -> bytes:
    """Return the bytes that `numpy.save` writes."""
    array = np.ascontiguousarray(array) if array.ndim else array
    return _npy_header(array.dtype.str, array.shape) + array.tobytes()


@lru_cache(maxsize=256)
def _npy_header(descr: str, shape: tuple[int, ...]) -> bytes:
    stream = BytesIO()
    npy_format.write_array_header_1_0(stream, {"descr": descr, "fortran_order": False, "shape": shape})
    return stream.getvalue()


def _any(value: Any) -> bytes:
    """Return the bytes of a value whose type comes from another format."""
    if isinstance(value, bytes):
        return value
    if isinstance(value, str | Decimal):
        return str(value).encode()
    if isinstance(value, int | float | np.generic):
        return _text(value)
    if isinstance(value, np.ndarray) and not value.dtype.hasobject:
        return npy_bytes(value)
    raise Refused("bytes, text, a number or an array", type(value).__name__)


# --- headers


def tar_header(name: str, size: int) -> bytes:
    """Return the ustar header of a member, preceded by a pax header if the name is long or not ASCII."""
    data = name.encode()
    if len(data) <= _NAME and data.isascii():
        return _ustar(data, size, b"0")
    record = b" path=" + data + b"\n"
    length = len(record)
    while length < len(record) + len(str(length)):  # the length counts its own digits
        length = len(record) + len(str(length))
    record = b"%d%s" % (length, record)
    padded = record + bytes(-length % _BLOCK)
    return _ustar(b"././@PaxHeader", length, b"x") + padded + _ustar(name.encode("ascii", "replace"), size, b"0")


def _ustar(name: bytes, size: int, kind: bytes) -> bytes:
    """Return a header block: mode 644, owner 0, time 0."""
    start = b"%b0000644\0%b%b%011o\0%011o\0" % (name[:_NAME].ljust(_NAME, b"\0"), _NOBODY, _NOBODY, size, 0)
    rest = kind + bytes(100) + b"ustar\0" + b"00"
    checksum = sum(start) + sum(rest) + 8 * ord(" ")
    return (start + b"%06o\0 " % checksum + rest).ljust(_BLOCK, b"\0")
