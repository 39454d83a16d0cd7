"""The file of lengths: its bytes, and that no damage in them passes."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
import xxhash

from mdsx.errors import CorruptError, FormatError, UnsupportedError
from mdsx.format import STORED_LENGTH, LengthIdentity, LengthTrailer, filenames
from tests.format import reference
from tests.vectors import generate

PLAIN = Path(generate.__file__).parent / "good" / "plain"
FILE = (PLAIN / "_lengths" / "text.u32").read_bytes()
IDENTITY = LengthIdentity(json.loads((PLAIN / "index.json").read_bytes())["fingerprint"], "text", "bytes")
PARTS = [np.array(lengths, STORED_LENGTH) for lengths in ([0, 1], [2, 3, 4])]
HEAD = 20


def read(data: bytes) -> list[list[int]]:
    """Return the lengths of each shard, checked as a reader does."""
    trailer, found, start = LengthTrailer.parse(data[HEAD:], file="x"), [], 0
    trailer.check(IDENTITY, [2, 3], file="x")
    for shard, count in enumerate((2, 3)):
        lengths = np.frombuffer(data, STORED_LENGTH, count, start)
        if IDENTITY.hash(shard, lengths) != trailer.hashes[shard]:
            raise CorruptError("damaged")
        found.append(lengths.tolist())
        start += 4 * count
    return found


def test_the_golden_file_is_written_and_read() -> None:
    trailer = LengthTrailer.of(IDENTITY, PARTS)
    assert b"".join(part.tobytes() for part in PARTS) + trailer.text() == FILE
    assert read(FILE) == [[0, 1], [2, 3, 4]]
    assert (trailer.samples, trailer.sum) == (5, 10)


def test_a_columns_name_is_written_as_it_is() -> None:
    identity = LengthIdentity(IDENTITY.fingerprint, "é\u200d", "bytes")
    written = LengthTrailer.of(identity, PARTS).text()
    assert written == reference.lengths(identity.fingerprint, identity.column, "bytes", [[0, 1], [2, 3, 4]])[HEAD:]


@pytest.mark.parametrize("shards", [0, 10_000])
def test_a_reader_knows_the_most_bytes_of_a_trailer(shards: int) -> None:
    identity = LengthIdentity(IDENTITY.fingerprint, '"' * 255, "bytes")
    trailer = LengthTrailer.of(identity, [np.zeros(0, STORED_LENGTH)] * shards)
    assert 16 * shards < len(trailer.text()) <= LengthTrailer.most_bytes(shards)


def test_no_changed_byte_passes() -> None:
    for at in range(len(FILE)):
        for change in (1, 128):
            with pytest.raises(FormatError):
                read(FILE[:at] + bytes([FILE[at] ^ change]) + FILE[at + 1 :])


def test_no_part_of_a_file_passes() -> None:
    for data in (FILE[:HEAD], FILE[:-1], FILE + b"\n", FILE[4:], bytes(4) + FILE, FILE[:HEAD] + FILE):
        with pytest.raises(FormatError):
            read(data)


@pytest.mark.parametrize(
    "other",
    [
        reference.lengths("0" * 32, "text", "bytes", [[0, 1], [2, 3, 4]]),
        reference.lengths(IDENTITY.fingerprint, "texts", "bytes", [[0, 1], [2, 3, 4]]),
        reference.lengths(IDENTITY.fingerprint, "text", "values", [[0, 1], [2, 3, 4]]),
        reference.lengths(IDENTITY.fingerprint, "text", "bytes", [[0, 1, 2, 3, 4]]),
        reference.lengths(IDENTITY.fingerprint, "text", "bytes", [[0, 1, 2], [3, 4]]),
        reference.lengths(IDENTITY.fingerprint, "text", "bytes", [[2, 3, 4], [0, 1]]),
    ],
)
def test_lengths_of_something_else_do_not_pass(other: bytes) -> None:
    with pytest.raises(CorruptError):
        read(other)


def test_unknown_keys_are_ignored_and_later_versions_refused() -> None:
    text = FILE[HEAD:].decode()
    more = text.partition(',"checksum"')[0] + ',"new":[1]'
    assert read(FILE[:HEAD] + reference.seal_index(more)) == [[0, 1], [2, 3, 4]]
    with pytest.raises(UnsupportedError, match="upgrade"):
        read(FILE[:HEAD] + re.sub(rb'"version":1', b'"version":12', FILE[HEAD:]))


@pytest.mark.parametrize(
    ("column", "key"),
    [
        ("tokens", "_lengths/tokens.u32"),
        (".a/b c=é", "_lengths/=2Ea=2Fb=20c=3D=C3=A9.u32"),
        ("..", "_lengths/=2E..u32"),
        ("x" * 255, f"_lengths/{'x' * 200}={xxhash.xxh3_64_hexdigest(b'x' * 255)}.u32"),
    ],
)
def test_each_column_has_a_file_of_its_own(column: str, key: str) -> None:
    assert filenames.lengths(column) == key
    assert len(key.rpartition("/")[2]) <= 255
