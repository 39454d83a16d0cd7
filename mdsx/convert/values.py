"""A tar's samples -> samples as the writer takes them: what a member's bytes mean in a column.

A value is read as its column's type says: numbers and bools from text or a NumPy file, arrays from a NumPy file; of the
other types a member holds just what a shard does. An absent member is null where the column takes null.
Every misfit is a SampleError that names tar, member and offset, and the `--column` that would mend it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from mdsx.convert.archive import Member
from mdsx.convert.columns import KEY, type_of_extension
from mdsx.convert.npy import MAGIC, parse_npy
from mdsx.convert.samples import TarSample
from mdsx.errors import CorruptError, SampleError
from mdsx.format import ColumnType, parse_json, parse_type, value_decoder

_INTEGER = re.compile(r"[+-]?[0-9]{1,40}")
_FLOAT = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?|[+-]?(inf|infinity|nan)", re.IGNORECASE)
_BOOLS = {"0": False, "1": True, "false": False, "true": True}


class SampleReader:
    """Reads samples of a dataset's `columns` out of the members of the tar `file`."""

    def __init__(self, columns: Mapping[str, str], *, file: str) -> None:
        self._types = {name: parse_type(kind) for name, kind in columns.items() if name != KEY}
        self._readers = {name: value_reader(kind) for name, kind in self._types.items()}
        self._file = file

    def read(self, sample: TarSample) -> dict[str, Any]:
        """The sample as the writer takes it. Raises SampleError."""
        if not sample.members.keys() <= self._types.keys():
            self._refuse_extra(sample)
        values: dict[str, Any] = {KEY: sample.key}
        for name, reader in self._readers.items():
            member = sample.members.get(name)
            if member is None:
                self._check_absent(name, sample)
                values[name] = None
                continue
            try:
                values[name] = reader(member.data)
            except (ValueError, CorruptError) as error:
                raise self._misfit(name, member, str(error)) from None
        return values

    def misfit(self, sample: TarSample, error: SampleError) -> SampleError:
        """What the writer said of a value of this sample, told in terms of the tar."""
        for name, member in sample.members.items():
            if error.place == f"column {name!r}":
                return self._misfit(name, member, f"expected {error.expected}, found {error.found}")
        return self._error(str(error), next(iter(sample.members.values())))

    def _misfit(self, name: str, member: Member, problem: str) -> SampleError:
        kind = self._types[name]
        hint = f"--column '{name}={wider_type(kind, member.data)}' would take it"
        return self._error(f"does not fit column {name!r} of type {kind}: {problem}", member, hint)

    def _check_absent(self, name: str, sample: TarSample) -> None:
        kind = self._types[name]
        first = next(iter(sample.members.values()))
        problem = f"sample {sample.key!r} has no member for column {name!r}"
        if sample.torn:
            raise self._error(f"{problem}: the damage behind it may have taken it", first)
        if not kind.nullable:
            raise self._error(f"missing member: {problem}", first, f"--column '{name}={kind}?' makes absent ones null")

    def _refuse_extra(self, sample: TarSample) -> None:
        name, member = next((name, member) for name, member in sample.members.items() if name not in self._types)
        problem = f"mixed extensions: sample {sample.key!r} has {name!r}, the columns are {', '.join(self._types)}"
        hint = f"--column '{name}={type_of_extension(name)}?' takes it, with null where it is absent"
        raise self._error(problem, member, hint)

    def _error(self, problem: str, member: Member, hint: str | None = None) -> SampleError:
        return SampleError(problem, file=self._file, place=member.place, hint=hint)


def value_reader(kind: ColumnType) -> Callable[[bytes], Any]:
    """What makes a value for the writer out of a member's bytes; raises ValueError or CorruptError."""
    if kind.is_list:
        return _list_reader(kind)
    if kind.shape is not None:
        return parse_npy
    if kind.scalar:
        return lambda data: parse_npy(data)[()] if data.startswith(MAGIC) else _scalar(kind.base, data)
    decode = value_decoder(kind, "")
    return lambda data: decode(memoryview(data))


def _list_reader(kind: ColumnType) -> Callable[[bytes], Any]:
    def read(data: bytes) -> Any:
        if kind.base not in ("str", "json"):
            raise ValueError("a list in a tar is a JSON array, so it can only be of str or json")
        values = parse_json(data)
        if not isinstance(values, list):
            raise ValueError("this is not a JSON array")
        return values

    return read


def wider_type(kind: ColumnType, data: bytes) -> ColumnType:
    """A type that takes the bytes that `kind` did not: dimensions starred where they differ, else str, else bytes."""
    if kind.scalar and data.startswith(MAGIC):
        try:
            array = parse_npy(data)
        except ValueError:
            return ColumnType("bytes", None, kind.nullable)
        if str(array.dtype) == kind.base and kind.shape is not None and array.ndim == len(kind.shape):
            dims = zip(kind.shape, array.shape, strict=True)
            return ColumnType(kind.base, tuple(old if old == new else None for old, new in dims), kind.nullable)
    is_text = kind.scalar and kind.shape is None and data.isascii()
    return ColumnType("str" if is_text else "bytes", None, kind.nullable)


def _scalar(base: str, data: bytes) -> object:
    text = data.decode("utf-8", "replace").strip()
    shown = repr(text if len(text) <= 40 else text[:40] + "...")
    if base == "bool":
        if text.lower() not in _BOOLS:
            raise ValueError(f"{shown} is none of 0, 1, true, false")
        return _BOOLS[text.lower()]
    if "float" in base:
        if not _FLOAT.fullmatch(text):
            raise ValueError(f"{shown} is not a number")
        return float(text)
    if not _INTEGER.fullmatch(text):
        raise ValueError(f"{shown} is not an integer")
    return int(text)
