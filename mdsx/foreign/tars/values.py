"""Read the values of a tar's samples from the bytes of their members.

A column's type determines how a value is read: numbers and bools from text or a NumPy file, arrays from a NumPy file,
lists from JSON. For other types, a member has the same bytes as a value in a shard. An absent member is null if the
column is nullable. NaN and Infinity in JSON are errors, or null. Parsed JSON and MessagePack take many times their
stored size, so their size in a sample is limited in relation to the tar's file. A value that does not fit raises a
SampleError that names tar, member and offset, and the option that would accept it. Nothing is ever unpickled.
"""

from __future__ import annotations

import json
import math
import re
import shlex
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mdsx.base.strict_json import parse_json
from mdsx.errors import CorruptError, SampleError, shown
from mdsx.foreign.npy import NPY_MAGIC, NpyHeader, read_npy_header
from mdsx.foreign.tars.blocks import printable
from mdsx.foreign.tars.grouping import TarSample
from mdsx.foreign.tars.members import TarMember
from mdsx.foreign.tars.names import KEY
from mdsx.format import BYTES, EXTENSIONS, JSON, STR, ColumnType, Kind, parse_type, value_decoder

_INTEGER = re.compile(r"[+-]?[0-9]{1,40}")
_FLOAT = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?|[+-]?(inf|infinity|nan)", re.IGNORECASE)
_LONGEST_NUMBER = 1000  # characters
_PARSED_ROOM, _TARS_PARSED_ROOM, _PARSED_RATIO = 2**21, 2**24, 50
_BOOLS = {"0": False, "1": True, "false": False, "true": True}


def type_of_extension(name: str) -> str:
    """Return the type of column `name` by its extension alone. The last component counts (`seg.png` is png)."""
    return EXTENSIONS.get(name.rpartition(".")[2], BYTES).name


class SampleReader:
    """Reads the samples of the tar `file`, which has `stored` bytes, as samples of a dataset with these `columns`.

    With `nan_null`, NaN and Infinity in JSON are read as null. `convert`: the command to convert with, for hints. With
    `others`, members without a column are left out.
    """

    def __init__(
        self,
        columns: Mapping[str, str],
        *,
        file: str,
        stored: int,
        nan_null: bool = False,
        convert: str = "",
        others: bool = False,
    ) -> None:
        self._others = others
        self._nan_hint = f"{convert}--nan null makes NaN and Infinity null"
        self._types = {name: parse_type(kind) for name, kind in columns.items() if name != KEY}
        self._readers = {name: value_reader(kind, nan_null=nan_null) for name, kind in self._types.items()}
        self._parsed = [name for name, kind in self._types.items() if kind.kind == "document" or kind.is_list]
        self._file, self._most_parsed = file, _PARSED_ROOM + _PARSED_RATIO * stored
        self._parsed_left = _TARS_PARSED_ROOM + _PARSED_RATIO * stored

    def read(self, sample: TarSample) -> dict[str, Any]:
        """Return the sample as the writer accepts it. Raise SampleError."""
        if not self._others and not sample.members.keys() <= self._types.keys():
            self._refuse_extra(sample)
        if self._parsed:
            self._check_parsed(sample)
        values: dict[str, Any] = {KEY: sample.key}
        for name, reader in self._readers.items():
            member = sample.members.get(name)
            if member is None:
                self._check_absent(name, sample)
                values[name] = None
                continue
            if member.skipped:
                values[name] = None
                continue
            try:
                values[name] = reader(member.data)
            except (ValueError, CorruptError) as error:
                raise self._misfit(name, member, str(error)) from None
        return values

    def misfit(self, sample: TarSample, error: SampleError) -> SampleError:
        """Return the writer's error for a value of this sample, in terms of the tar."""
        for name, member in sample.members.items():
            if error.place == f"column {name!r}":
                return self._misfit(name, member, f"expected {error.expected}, found {error.found}")
        return self._error(str(error), next(iter(sample.members.values())))

    def _misfit(self, name: str, member: TarMember, problem: str) -> SampleError:
        kind = self._types[name]
        hint = f"--column '{name}={_wider_type(kind, member.data)}' would accept it"
        if kind.base == JSON.name and _has_nan(member.data):
            hint = f"{self._nan_hint}; {hint}"
        return self._error(f"does not fit column {name!r} of type {kind}: {problem}", member, hint)

    def _check_absent(self, name: str, sample: TarSample) -> None:
        kind = self._types[name]
        first = next(iter(sample.members.values()))
        problem = f"sample {printable(sample.key)} has no member for column {name!r}"
        if sample.torn:
            raise self._error(f"{problem}: the damage after it may have destroyed the member", first)
        if not kind.nullable:
            raise self._error(f"missing member: {problem}", first, f"--column '{name}={kind}?' makes absent ones null")

    def _check_parsed(self, sample: TarSample) -> None:
        members = [sample.members[name] for name in self._parsed if name in sample.members]
        size = sum(len(member.data) for member in members)
        if size > min(self._most_parsed, self._parsed_left):
            whose = "this sample" if size > self._most_parsed else "this tar, up to here,"
            problem = f"json and msgpack of {whose} have far more bytes, decompressed, than the tar's file"
            hint = (
                f"the limit is {_PARSED_RATIO} times the file's size, plus 2 MiB a sample and 16 MiB a tar: decompress "
                "it first"
            )
            raise self._error(problem, members[0], hint)
        self._parsed_left -= size

    def _refuse_extra(self, sample: TarSample) -> None:
        name, member = next((name, member) for name, member in sample.members.items() if name not in self._types)
        extra, columns = printable(name), ", ".join(self._types)
        problem = f"mixed extensions: sample {printable(sample.key)} has {extra}, the columns are {columns}"
        hints = [f"--column {shlex.quote(f'{name}={type_of_extension(name)}?')} accepts it, null where it is absent"]
        absent = next((column for column in self._types if column not in sample.members), None)
        if absent is not None:
            hints.append(f"--rename {shlex.quote(f'NEW={absent};{name}')} makes one column of both")
        hints.append(f"--drop {shlex.quote(name)} leaves it out")
        if "." in name:
            hints.append("--key-until last-dot makes only the part after the last dot the column")
        raise self._error(problem, member, "; ".join(hints) if name.isprintable() and len(name) < 200 else None)

    def _error(self, problem: str, member: TarMember, hint: str | None = None) -> SampleError:
        return SampleError(problem, file=self._file, place=member.place, hint=hint)


def value_reader(kind: ColumnType, *, nan_null: bool = False) -> Callable[[bytes], Any]:
    """Return a function that reads a member's bytes as a value for the writer. It raises ValueError or CorruptError."""
    as_json = _json_without_nan if nan_null else parse_json
    if kind.is_list:
        return _list_reader(kind, as_json)
    if kind.base == JSON.name:
        return as_json
    if kind.shape is not None:
        return parse_npy
    if kind.scalar:
        return lambda data: parse_npy(data)[()] if data.startswith(NPY_MAGIC) else _scalar(kind.kind, data)
    if kind.stored.kind == "bytes":
        return kind.object.given  # returns bytes without a copy
    decode = value_decoder(kind, "")
    return lambda data: decode(memoryview(data))


def _list_reader(kind: ColumnType, as_json: Callable[[bytes], object]) -> Callable[[bytes], Any]:
    def read(data: bytes) -> Any:
        if not kind.object.textual:
            raise ValueError(f"a list in a tar is a JSON array, so its items can only be {STR.name} or {JSON.name}")
        values = as_json(data)
        if not isinstance(values, list):
            raise ValueError("this is not a JSON array")
        return values

    return read


def _wider_type(kind: ColumnType, data: bytes) -> ColumnType:
    """Return a type that accepts `data`, which `kind` does not: with starred dimensions, or str, or bytes."""
    if kind.scalar and data.startswith(NPY_MAGIC):
        try:
            array = parse_npy(data)
        except ValueError:
            return ColumnType(BYTES.name, None, kind.nullable)
        if str(array.dtype) == kind.base and kind.shape is not None and array.ndim == len(kind.shape):
            dims = zip(kind.shape, array.shape, strict=True)
            return ColumnType(kind.base, tuple(old if old == new else None for old, new in dims), kind.nullable)
    is_text = kind.scalar and kind.shape is None and data.isascii()
    return ColumnType(STR.name if is_text else BYTES.name, None, kind.nullable)


def _json_without_nan(data: bytes) -> object:
    try:
        return _WITHOUT_NAN.decode(data.decode())
    except RecursionError:
        raise ValueError("the JSON is nested too deeply") from None
    except ValueError as error:
        raise ValueError(f"this is not JSON: {error}") from None


def _has_nan(data: bytes) -> bool:
    """Return whether `data` would be JSON without its NaN or Infinity."""
    found: list[str] = []

    def note(text: str) -> None:
        if not math.isfinite(float(text)):
            found.append(text)

    try:
        json.JSONDecoder(parse_constant=note, parse_float=note).decode(data.decode())
    except (ValueError, RecursionError):
        return False
    return bool(found)


def _finite(text: str) -> float | None:
    return number if math.isfinite(number := float(text)) else None


_WITHOUT_NAN = json.JSONDecoder(parse_constant=lambda constant: None, parse_float=_finite)


def _scalar(kind: Kind | None, data: bytes) -> object:
    if len(data) > _LONGEST_NUMBER:
        data = data[:_LONGEST_NUMBER] + b"..."
    text = data.decode("utf-8", "replace").strip()
    quoted = repr(text if len(text) <= 40 else text[:40] + "...")
    if kind == "bool":
        if text.lower() not in _BOOLS:
            raise ValueError(f"{quoted} is not one of 0, 1, true, false")
        return _BOOLS[text.lower()]
    if kind == "float":
        if not _FLOAT.fullmatch(text):
            raise ValueError(f"{quoted} is not a number")
        if math.isinf(number := float(text)) and "inf" not in text.lower():
            raise ValueError(f"{quoted} is too large")
        return number
    if not _INTEGER.fullmatch(text):
        raise ValueError(f"{quoted} is not an integer")
    return int(text)


def parse_npy_header(data: bytes) -> NpyHeader:
    """Parse the header of a NumPy file with the bytes `data`. Raise ValueError."""
    try:
        header = read_npy_header(data)
    except ValueError as error:
        raise ValueError(f"not a NumPy file: {error}") from None
    if header.dtype.hasobject:
        raise ValueError("a NumPy file with pickled objects, which are never loaded")
    expected, found = math.prod(header.shape) * header.dtype.itemsize, len(data) - header.start
    if expected != found:
        raise ValueError(f"a NumPy file of {expected} bytes of data has {found}")
    return header


def parse_npy(data: bytes) -> NDArray[Any]:
    """Return the array in the bytes of a NumPy file, in native byte order; a view of `data` if possible.

    Raise ValueError.
    """
    header = parse_npy_header(data)
    some = len(data) > header.start
    array = np.frombuffer(data, header.dtype, offset=header.start) if some else np.empty(0, header.dtype)
    try:
        array = array.reshape(header.shape, order="F" if header.fortran else "C")
    except (ValueError, OverflowError):
        raise ValueError(f"a NumPy file with an impossible shape: {shown(header.shape)}") from None
    return array.astype(header.dtype.newbyteorder("="), copy=False)
