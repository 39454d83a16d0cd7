"""The owner of each byte of an undamaged shard, computed from the fields by the specification, without mdsx."""

from __future__ import annotations

import struct
from typing import NamedTuple

from tests.format.reference import ITEMS, fixed, get, row_at, schema, split


class Owner(NamedTuple):
    """`part`: header, schema or padding; or a sample's checksum, extent (start and lengths), column or row padding."""

    part: str
    sample: int | None = None
    column: str | None = None


def owners(shard: bytes) -> list[Owner]:
    """Return the owner of each byte."""
    found = [Owner("padding")] * len(shard)
    found[:64] = [Owner("header")] * 64
    found[64 : 64 + get(shard, "schema_size")] = [Owner("schema")] * get(shard, "schema_size")
    columns = schema(shard)
    variable = [column["name"] for column in columns if not fixed(column["type"])]
    heap = get(shard, "heap_offset")
    for sample in range(get(shard, "samples")):
        row, size = row_at(shard, sample), get(shard, "row_size")
        found[row : row + size] = [Owner("row padding", sample)] * size
        found[row : row + 8] = [Owner("checksum", sample)] * 8
        at = row + 8
        if variable:
            at = row + 16 + 4 * len(variable)
            found[row + 8 : at] = [Owner("extent", sample)] * (at - row - 8)
        for column in columns:
            if fixed(column["type"]):
                base, shape, _ = split(column["type"])
                item = struct.calcsize(ITEMS[base])
                nbytes = item
                for dim in shape or ():
                    nbytes *= dim or 0
                at = row + -(-(at - row) // item) * item
                found[at : at + nbytes] = [Owner("column", sample, column["name"])] * nbytes
                at += nbytes
        if variable:
            start, *lengths = struct.unpack_from(f"<Q{len(variable)}I", shard, row + 8)
            at = heap + start
            for name, length in zip(variable, lengths, strict=True):
                length = 0 if length == 0xFFFFFFFF else length
                found[at : at + length] = [Owner("column", sample, name)] * length
                at += length
    return found
