"""Small indexed tars for the tests, made without `mdsx index tar`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import xxhash

from mdsx.foreign.tars import INDEX_KEY, KEY, IndexedTar, build_text
from mdsx.foreign.tars.pointers import Pointer, PointerBuilder, PointerSchema
from mdsx.format import Schema, filenames
from tests.foreign.tars.tars import npy, tar_bytes

Samples = Sequence[Mapping[str, Any]]
END = 1024


def member_bytes(kind: str, value: Any) -> bytes:
    """Return the bytes of a member with a value of this type."""
    if isinstance(value, bytes):
        return value
    if "[" in kind:
        return npy(np.asarray(value, kind.partition("[")[0]))
    return (value if isinstance(value, str) else json.dumps(value)).encode()


def tar_of(columns: Mapping[str, str], samples: Samples, first: int = 0, prefix: str = "s") -> bytes:
    """Return a tar of samples, with as few zeros at its end as there can be."""
    members = [
        (f"{prefix}{first + number:06}.{name}", member_bytes(kind, each[name]))
        for number, each in enumerate(samples)
        for name, kind in columns.items()
        if name != KEY and each[name] is not None
    ]
    data = tar_bytes(members).rstrip(b"\0")
    return data + bytes(-len(data) % 512 + END)


def pointers_of(columns: Mapping[str, str], samples: Samples, tar: bytes, *, checksums: bool = True) -> bytes:
    """Return the pointer shard of a tar from `tar_of`."""
    schema = PointerSchema(Schema.from_columns(columns))
    builder, at = PointerBuilder(schema), 0
    for each in samples:
        start, values, stop = at, dict[str, Any](), at
        for name, kind in columns.items():
            value = values[name] = each.get(name)
            if name == KEY or value is None:
                continue
            size = len(member_bytes(kind, value))
            begin, stop = at + 512, at + 512 + size
            if "[" in kind:
                array = np.asarray(value)
                values[name] = Pointer(stop - tar_size(kind, array), stop, array.shape)
            elif kind.rstrip("?") in ("bytes", "str", "json", "jpeg", "png", "msgpack"):
                values[name] = Pointer(begin, stop)
            at = stop + -size % 512
        if KEY in columns and each[KEY] is None:
            values[KEY] = Pointer(start, tar.index(b".", start))
        builder.add(start, stop, xxhash.xxh3_64_intdigest(tar[start:stop]) if checksums else 0, values)
    return builder.build()


def tar_size(kind: str, array: Any) -> int:
    return int(np.dtype(kind.partition("[")[0]).itemsize * array.size)


def write_indexed(
    folder: Path,
    columns: Mapping[str, str],
    shards: Sequence[Samples],
    *,
    checksums: bool = True,
    index: Path | None = None,
) -> None:
    """Write a tar for each of `shards`, and an index of them, to `folder` or `index`."""
    beside, entries = index or folder, []
    folder.mkdir(parents=True, exist_ok=True)
    (beside / filenames.POINTERS_FOLDER).mkdir(parents=True)
    for number, samples in enumerate(shards):
        name, tar = f"{number:04}.tar", tar_of(columns, samples, 1000 * number)
        (folder / name).write_bytes(tar)
        pointers = pointers_of(columns, samples, tar, checksums=checksums)
        hash = xxhash.xxh3_128_hexdigest(pointers)
        key = filenames.pointers(name, hash)
        (beside / key).write_bytes(pointers)
        found = xxhash.xxh3_128_hexdigest(tar) if checksums else None
        entries.append(IndexedTar(name, len(tar), "", found, len(samples), key, len(pointers), hash))
    (beside / INDEX_KEY).write_bytes(build_text(Schema.from_columns(columns), entries))
