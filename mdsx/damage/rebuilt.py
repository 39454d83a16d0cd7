"""The index built anew from the shards, and whether that is the one that was damaged.

The checksum of the damaged index is what proves it: an index built from the shards that has this checksum is the
original, to the last byte. Where the checksum itself was damaged, all its other digits prove it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from mdsx.errors import CorruptError, UsageError
from mdsx.format import Schema, ShardEntry, build_index, parse_json

_DIGITS = slice(-19, -3)  # of the checksum, before '"}\n'
_PROOF = 15  # of 16 digits: by chance, once in 10^16


def original(
    data: bytes,
    schema: Schema,
    compression: str | None,
    entries: Sequence[ShardEntry],
    guesses: Iterable[dict[str, Any]],
) -> bytes | None:
    """The index that `data` was before it was damaged, if that can be proven. `guesses`: what its metadata may be,
    beside what still stands there."""
    for metadata in (*_standing(data), {}, *guesses):
        try:
            built = build_index(schema, compression, entries, metadata)
        except UsageError:
            continue
        if sum(one == other for one, other in zip(built[_DIGITS], data[_DIGITS], strict=False)) >= _PROOF:
            return built
    return None


def _standing(data: bytes) -> Iterator[dict[str, Any]]:
    """The metadata that can be read in a damaged index: not to be believed without a proof."""
    start, stop = data.find(b'"metadata":', max(0, data.find(b'"fingerprint":"'))), data.rfind(b',"checksum":"')
    try:
        metadata = parse_json(data[start + len(b'"metadata":') : stop])
    except CorruptError:
        return
    if start >= 0 and isinstance(metadata, dict):
        yield metadata
