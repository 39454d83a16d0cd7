"""Parse lines of JSON objects to values of columns: strictly, and in blocks of columns if that is safe.

`ObjectReader.values` defines what a line means. `ObjectReader.block` reads many lines at once, several times as fast;
it returns the same values, or None.

- A line is a JSON object in UTF-8, without a duplicate key at any depth. NaN, Infinity and numbers that are too large
  for binary64 are errors, or null.
- A column accepts only JSON of its kind: `true` is not a number, and 1.0 is not an integer. Float columns accept
  integers, too.
- Columns of `bytes` and images accept base64 text (RFC 4648, padded), columns of `json` and `msgpack` any value.
- An absent key is null.
"""

from __future__ import annotations

import json
import math
import re
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from mdsx.errors import CorruptError, MdsxError, SampleError, shown
from mdsx.format import as_stored, describe, parse_type
from mdsx.transfer.converting.json_types import inferred_type, python_type, wider_type

_SPACED = re.compile(rb'"[ \t\r\n]+:')
_NO_FIELD = re.compile(r'[\\"\x00-\x1f]')  # in a key, which msgspec then refuses as the name of a field
_KEY, _ESCAPED, _DOUBTFUL = b'":', b'\\":', b'\\\\":'
_decode_any = msgspec.json.Decoder().decode
_FAILURES = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
_DOCUMENT = "one object per line: `jq -c .` writes it, or `jq -c '.[]'` for an array"


class ObjectReader:
    """Reads lines as samples of a dataset with these `columns`, name -> type.

    `renamed`: key -> the name of its column, if it differs. Keys in `drop` are left out; with `others`, also all keys
    without a column. With `nan_null`, NaN and Infinity are null.
    """

    def __init__(
        self,
        columns: Mapping[str, str],
        renamed: Mapping[str, str],
        drop: Iterable[str],
        *,
        nan_null: bool,
        others: bool = False,
    ) -> None:
        key_of = {name: key for key, name in renamed.items()}
        self._types = {name: parse_type(kind) for name, kind in columns.items()}
        self._python = {name: python_type(kind) for name, kind in self._types.items()}
        self._columns = {key_of.get(name, name): name for name in columns}
        self._drop = frozenset(drop)
        self._parser = strict_parser(nan_null=nan_null)
        keys = {key: f"f{number}" for number, key in enumerate([*self._columns, *sorted(self._drop)])}
        self._decode: Callable[[bytes], Any] | None = None  # lines are read one by one
        self._others = others
        if not any(map(_NO_FIELD.search, keys)):
            line = msgspec.defstruct(
                "Line",
                [(field, *self._field(key)) for key, field in keys.items()],
                rename={field: key for key, field in keys.items()},
                forbid_unknown_fields=True,
                kw_only=True,
                gc=False,
            )
            self._decode = msgspec.json.Decoder(line).decode
        self._fields = [(field, self._columns.get(key)) for key, field in keys.items()]

    def _field(self, key: str) -> tuple[Any, ...]:
        if key in self._drop:
            return Any, msgspec.UNSET
        name = self._columns[key]
        return (self._python[name], msgspec.UNSET) if self._types[name].nullable else (self._python[name],)

    def block(self, lines: Sequence[bytes]) -> dict[str, list[Any]] | None:
        """Return the columns of the samples in `lines`; None if one may be invalid. No line is empty."""
        if self._others:
            return self._block_of_some(lines)
        if self._decode is None:
            return None
        try:
            rows = list(map(self._decode, lines))
        except _FAILURES:
            return None
        columns, keys = {}, 0
        for field, name in self._fields:
            values = [getattr(row, field) for row in rows]
            if name is None or self._types[name].nullable:
                absent = values.count(msgspec.UNSET)
                keys -= absent
                if absent:
                    values = [None if value is msgspec.UNSET else value for value in values]
            keys += len(values)
            if name is None or self._types[name].kind == "document":
                keys += sum(map(_keys, values))
            if name is not None:
                columns[name] = self._given(name, values)
        if not _all_unique(b"\n".join(lines), keys):
            for line, row in zip(lines, rows, strict=True):
                if not _all_unique(line, _keys(msgspec.structs.asdict(row)) - _absent(row)):
                    try:
                        self._object(line)
                    except MdsxError:
                        return None
        return columns

    def _block_of_some(self, lines: Sequence[bytes]) -> dict[str, list[Any]] | None:
        """As `block`, for lines that have other keys too: read these as well, and leave out their values."""
        try:
            rows = list(map(_decode_any, lines))
            columns = dict[str, list[Any]]()
            for key, name in self._columns.items():
                absent = self._types[name].nullable
                values = [row.get(key) for row in rows] if absent else [row[key] for row in rows]
                found = msgspec.convert(values, list[self._python[name]])  # type: ignore[name-defined]
                columns[name] = self._given(name, found)
        except (*_FAILURES, AttributeError, TypeError, KeyError):
            return None
        keys = list(map(_keys, rows))
        if not _all_unique(b"\n".join(lines), sum(keys)):
            for line, count in zip(lines, keys, strict=True):
                if not _all_unique(line, count):
                    try:
                        self._object(line)
                    except MdsxError:
                        return None
        return columns

    def values(self, line: bytes) -> dict[str, Any]:
        """Return the sample in a line. Raise CorruptError or SampleError, which name neither file nor line."""
        given, found = self._object(line), dict[str, Any]()
        for key, value in given.items():
            if (name := self._columns.get(key)) is not None:
                found[name] = self._fitting(name, value)
            elif key not in self._drop and not self._others:
                option, name = shlex.quote(f"{key}={inferred_type([value]).removesuffix('?')}?"), shlex.quote(key)
                hint = f"--column {option} accepts it, with null where it is absent; --drop {name} leaves it out"
                raise SampleError("no column has this key", place=f"key {shown(key)}", found=describe(value), hint=hint)
        for name, kind in self._types.items():
            if name not in found and not kind.nullable:
                hint = f"--column {shlex.quote(f'{name}={kind}?')} makes absent ones null"
                raise SampleError("the key is missing", place=f"column {name!r}", hint=hint)
        return {name: self._given(name, [found.get(name)])[0] for name in self._types}

    def _given(self, name: str, values: list[Any]) -> list[Any]:
        """Return values in the writer's form."""
        return as_stored(values) if self._types[name].packaged else values

    def hint(self, name: str, value: object) -> str | None:
        """Return the option with which column `name` would accept `value`, which it refused."""
        wider = wider_type(self._types[name], value)
        return f"--column {shlex.quote(f'{name}={wider}')} would accept it" if wider else None

    def _fitting(self, name: str, value: Any) -> Any:
        if value is None:  # the writer's error, if the column is not nullable
            return None
        try:
            return msgspec.convert(value, self._python[name])
        except (msgspec.ValidationError, UnicodeEncodeError) as error:  # of a lone surrogate
            kind = self._types[name]
            expected = "base64 text" if kind.stored.kind == "bytes" else None
            where = str(error).partition(" - at ")[2].strip("`$")
            raise SampleError(
                f"does not fit {kind}",
                place=f"column {name!r}",
                expected=expected,
                found=f"{describe(value)}{f', at {where}' if where else ''}",
                hint=self.hint(name, value),
            ) from None

    def _object(self, line: bytes) -> dict[str, Any]:
        return parse_object(line, self._parser)


def parse_object(line: bytes, parser: json.JSONDecoder) -> dict[str, Any]:
    """Return the object in a line; `parser` is one of `strict_parser`. Raise CorruptError."""
    try:
        value = parser.decode(line.decode())
    except UnicodeDecodeError as error:
        found = f"byte {line[error.start]:#04x} at byte {error.start} of the line"
        raise CorruptError("the line is not UTF-8", found=found) from None
    except RecursionError:
        raise CorruptError("the JSON is nested too deeply") from None
    except json.JSONDecodeError as error:
        hint = _DOCUMENT if line.strip() in (b"[", b"{") else None
        message = f"the line is not JSON: {error.msg}, at character {error.pos}"
        raise CorruptError(message, found=shown(line[:80]), hint=hint) from None
    except _NotFiniteError as error:
        hint = "--nan null reads NaN and Infinity as null"
        raise CorruptError("NaN and Infinity are not JSON", found=str(error), hint=hint) from None
    except ValueError as error:  # a duplicate key, an integer of too many digits
        raise CorruptError(f"the line is not valid JSON: {error}") from None
    if not isinstance(value, dict):
        hint = _DOCUMENT if isinstance(value, list) else None
        raise CorruptError("the line is not a JSON object", found=describe(value), hint=hint)
    return value


class _NotFiniteError(ValueError):
    pass


def strict_parser(*, nan_null: bool) -> json.JSONDecoder:
    """Return a parser that refuses duplicate keys and, unless `nan_null`, numbers that are not finite."""

    def number(text: str) -> float | None:
        if math.isfinite(found := float(text)):
            return found
        if nan_null:
            return None
        raise _NotFiniteError(text[:40])

    return json.JSONDecoder(parse_constant=number, parse_float=number, object_pairs_hook=_unique)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise ValueError(f"duplicate key {shown(key)}")
            seen.add(key)
    return found


# --- whether an object has a duplicate key


def _all_unique(text: bytes, keys: int) -> bool:
    """Return whether no key is a duplicate in JSON whose objects have `keys` different ones; False if that is unclear.

    In text without spaces before colons, each key ends with a quotation mark and a colon. Such pairs may also occur
    after a backslash in a text, and where a text begins with a colon. So if there are as many pairs as keys, no key is
    a duplicate.
    """
    if _SPACED.search(text):
        return False
    found = text.count(_KEY)
    return found == keys or (_DOUBTFUL not in text and found - text.count(_ESCAPED) == keys)


def _keys(value: object) -> int:
    """Return how many keys the objects in a value have."""
    if type(value) is dict:
        return len(value) + sum(map(_keys, value.values()))
    return sum(map(_keys, value)) if type(value) is list else 0


def _absent(row: msgspec.Struct) -> int:
    return [getattr(row, field) for field in row.__struct_fields__].count(msgspec.UNSET)
