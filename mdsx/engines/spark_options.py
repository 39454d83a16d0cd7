"""Parse the options of `format("mdsx")`, which users give with `.option(name, text)`.

Names of Spark options ignore case, and values are text.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mdsx.base.sizes import parse_size
from mdsx.errors import UsageError, shown
from mdsx.storage import sealed

_STORAGE = "storage."
_READ = ("cache", "columns", "index", "partition_size", "snapshot")
_WRITE = ("columns", "compression", "lengths", "metadata", "shard_size")


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """The options of a read: those of `mdsx.Dataset`, and how much each task reads.

    `columns`: names, or new names -> names in the dataset; None for all. `partition_size`: bytes.
    """

    url: str
    columns: tuple[tuple[str, str], ...] | None
    partition_size: int
    cache: str | None
    index: str | None
    snapshot: str | None
    storage: tuple[tuple[str, Any], ...]

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> ReadOptions:
        """Raise UsageError for an unknown option, or an invalid value."""
        url, given, storage = _split(options, _READ, "load")
        columns = _names(given["columns"]) if "columns" in given else None
        size = parse_size(given.get("partition_size", "128MiB"), name="partition_size")
        cache, index, snapshot = given.get("cache"), given.get("index"), given.get("snapshot")
        return cls(url, columns, size, cache, index, snapshot, tuple(storage.items()))


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """The options of a write: those of `mdsx.engines.spark.write`."""

    url: str
    columns: dict[str, str] | None
    shard_size: str
    compression: str | None
    metadata: dict[str, Any] | None
    lengths: tuple[str, ...]
    storage: dict[str, Any]

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> WriteOptions:
        """Raise UsageError for an unknown option, or an invalid value."""
        url, given, storage = _split(options, _WRITE, "save")
        columns = _object("columns", given["columns"]) if "columns" in given else None
        if columns is not None and not all(isinstance(kind, str) for kind in columns.values()):
            raise _invalid("columns", given["columns"], 'JSON like {"pixels": "uint8[*]", "label": "int16"}')
        metadata = _object("metadata", given["metadata"]) if "metadata" in given else None
        lengths = tuple(filter(None, (name.strip() for name in given.get("lengths", "").split(","))))
        return cls(url, columns, given.get("shard_size", "64MiB"), given.get("compression"), metadata, lengths, storage)


def _split(options: Mapping[str, str], known: tuple[str, ...], call: str) -> tuple[str, dict[str, str], dict[str, Any]]:
    """Return the URL, our options, and those of the storage."""
    found = {name.lower(): value for name, value in options.items()}
    url = found.pop("path", "")
    if not url:
        hint = f"give the URL of one dataset with .{call}(url)"
        raise UsageError('format("mdsx") needs the URL of a dataset', hint=hint)
    storage = {name: found.pop(name) for name in list(found) if name.startswith(_STORAGE)}
    for name in found:
        if name not in known:
            expected = f"{', '.join(known)}, or {_STORAGE} and an option of the storage"
            raise UsageError(f'format("mdsx") has no such option for a {call}', found=shown(name), expected=expected)
    return url, found, dict(sealed({name.removeprefix(_STORAGE): value for name, value in storage.items()}) or {})


def _names(text: str) -> tuple[tuple[str, str], ...]:
    """Return new names and names in the dataset, from JSON or from names separated by commas."""
    if not text.lstrip().startswith(("[", "{")):
        names: Any = [name.strip() for name in text.split(",")]
    else:
        names = _json("columns", text)
    pairs = tuple(names.items()) if isinstance(names, dict) else tuple((name, name) for name in names)
    if not pairs or not all(isinstance(each, str) and each for pair in pairs for each in pair):
        raise _invalid("columns", text, 'names like text,label, or JSON: ["text"] or {"new name": "text"}')
    return pairs


def _object(name: str, text: str) -> dict[str, Any]:
    found = _json(name, text)
    if not isinstance(found, dict):
        raise _invalid(name, text, "a JSON object")
    return found


def _json(name: str, text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        raise _invalid(name, text, "JSON") from None


def _invalid(name: str, text: str, expected: str) -> UsageError:
    return UsageError(f"the option {name} is invalid", found=shown(text), expected=expected)
