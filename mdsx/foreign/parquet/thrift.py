"""Thrift's compact protocol, as needed for the footer of a Parquet file.

pyarrow reads data safely, but accessing row groups of some footers from Python ends the process. So mdsx parses them
itself. Unwanted fields are skipped, and memory is never allocated according to a count in the bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

MAX_DEPTH = 32

_STOP, _TRUE, _FALSE, _BYTE, _I16, _I32, _I64, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = range(13)


class ThriftError(ValueError):
    """The bytes are not a value of the compact protocol, or not of the wanted type."""


class Thrift:
    """Reads values from `data`, one after the other. All methods raise ThriftError, or IndexError at the end."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def struct(self, wanted: Mapping[int, Callable[[Thrift, int], Any]], kind: int = _STRUCT) -> dict[int, Any]:
        """Return the fields of a struct. `wanted`: field number -> how to read it, given its type."""
        self._expect(kind, _STRUCT)
        data, found, field = self._data, dict[int, Any](), 0
        while head := data[self._at]:
            self._at += 1
            field = field + (head >> 4) if head >> 4 else self._zigzag()
            read = wanted.get(field)
            if read is None:
                self._skip(head & 15, 0)
            else:
                found[field] = read(self, head & 15)
        self._at += 1
        return found

    def integer(self, kind: int) -> int:
        """Return an integer."""
        if not _I16 <= kind <= _I64:
            raise ThriftError(f"expected an integer, found type {kind}")
        return self._zigzag()

    def text(self, kind: int) -> str:
        """Return a string."""
        self._expect(kind, _BINARY)
        size = self._varint()
        start, self._at = self._at, self._at + size
        self._check_place()
        return self._data[start : self._at].decode()

    def present(self, kind: int) -> bool:
        """Skip a value of any type, and return True."""
        self._skip(kind, 0)
        return True

    def items(self, kind: int) -> Iterator[int]:
        """Yield the type of each item in a list. The caller must read each item before it requests the next one."""
        self._expect(kind, _LIST)
        count, item = self._list_head()
        for _ in range(count):
            yield item

    def _list_head(self) -> tuple[int, int]:
        head = self._data[self._at]
        self._at += 1
        return (head >> 4 if head >> 4 < 15 else self._varint()), head & 15

    def _varint(self) -> int:
        data, at = self._data, self._at
        byte = data[at]
        value, shift = byte & 127, 7
        while byte & 128:
            if shift > 63:
                raise ThriftError("an integer of more than 64 bits")
            at += 1
            byte = data[at]
            value |= (byte & 127) << shift
            shift += 7
        self._at = at + 1
        return value

    def _zigzag(self) -> int:
        value = self._varint()
        return (value >> 1) ^ -(value & 1)

    def _skip(self, kind: int, depth: int, in_list: bool = False) -> None:
        if depth > MAX_DEPTH:
            raise ThriftError("nested too deeply")
        if _I16 <= kind <= _I64:
            data, at = self._data, self._at
            while data[at] & 128:
                at += 1
            self._at = at + 1
        elif kind in (_TRUE, _FALSE):
            self._at += in_list  # a field's value is part of its type
        elif kind == _BINARY:
            size = self._varint()
            self._at += size
            self._check_place()
        elif kind == _BYTE:
            self._at += 1
        elif kind == _DOUBLE:
            self._at += 8
        elif kind in (_LIST, _SET):
            count, item = self._list_head()
            for _ in range(count):
                self._skip(item, depth + 1, in_list=True)
                self._check_place()
        elif kind == _MAP:
            count = self._varint()
            kinds = self._data[self._at] if count else 0
            self._at += count > 0
            for _ in range(count):
                self._skip(kinds >> 4, depth + 1, in_list=True)
                self._skip(kinds & 15, depth + 1, in_list=True)
                self._check_place()
        elif kind == _STRUCT:
            data = self._data
            while head := data[self._at]:
                self._at += 1
                if head < 16:
                    self._varint()
                self._skip(head & 15, depth + 1)
            self._at += 1
        else:
            raise ThriftError(f"there is no type {kind}")

    def _expect(self, kind: int, wanted: int) -> None:
        if kind != wanted:
            raise ThriftError(f"expected type {wanted}, found type {kind}")

    def _check_place(self) -> None:
        if self._at > len(self._data):
            raise ThriftError("the bytes end within a value")
