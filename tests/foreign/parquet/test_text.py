"""`_mdsx-parquet.json` is parsed strictly: what it says is consistent, or an error."""

from __future__ import annotations

import json
import re
from typing import Any

import numpy as np
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from mdsx.errors import CorruptError, FormatError, UnsupportedError
from mdsx.foreign.parquet import IndexedColumn, IndexedFile, IndexedGroup, ParquetFormat, build_text

COLUMNS = [IndexedColumn("a", "int64", "int64", 30, 0), IndexedColumn("b", "str?", "string", 50, 200)]
GROUPS = (IndexedGroup(5, 4, 50, 40, 100), IndexedGroup(3, 50, 90, 40, 100))
FILES = [
    IndexedFile("x/0.parquet", 1000, '"etag"', 900, "0" * 32, GROUPS),
    IndexedFile("x/empty.parquet", 100, "", 10, "1" * 32, ()),
]
TEXT = build_text(COLUMNS, FILES)


def parse(text: bytes) -> Any:
    return ParquetFormat().parse_index(text, file="index")


def changed(change: Any) -> bytes:
    """Return the index after a change of its parsed JSON, with a right checksum."""
    root = json.loads(TEXT)
    del root["checksum"]
    change(root)
    data = json.dumps(root, separators=(",", ":")).encode().removesuffix(b"}")
    return data + b',"checksum":"' + xxhash.xxh3_64_hexdigest(data).encode() + b'"}\n'


def test_an_index_says_what_was_written() -> None:
    index = parse(TEXT)
    assert index.samples == 8
    assert index.counts.tolist() == [5, 3]
    assert [index.name(0), index.name(1)] == ["x/0.parquet", "x/0.parquet"]
    assert index.object_size(1) == 1000
    assert index.sizes.tolist() == [40, 40]
    hashes = np.concatenate([index.raw_hashes[:2], index.project([1]).raw_hashes[:1]])
    assert len(np.unique(hashes, axis=0)) == 3
    assert index.project([0]).fingerprint == index.fingerprint
    assert index.project([0]).sizes.tolist() == [15, 15]
    assert (index.project([0]).raw_sizes < index.raw_sizes).all()
    assert parse(changed(lambda root: None)).fingerprint == index.fingerprint
    with pytest.raises(IndexError):
        index.name(2)


def test_the_fingerprint_is_that_of_the_files_not_of_their_names() -> None:
    def rename(root: Any) -> None:
        root["files"]["name"] = ["other", "names"]
        root["files"]["etag"] = ["", ""]

    assert parse(changed(rename)).fingerprint == parse(TEXT).fingerprint
    other = changed(lambda root: root["files"].update(xxh3_128="2" * 64))
    assert parse(other).fingerprint != parse(TEXT).fingerprint


CHANGES = {
    "another number of files": lambda root: root["files"]["size"].pop(),
    "another number of groups": lambda root: root["groups"]["rows"].append(1),
    "another sum of rows": lambda root: root.update(samples=9),
    "a group without rows": lambda root: root["groups"].update(rows=[8, 0]),
    "a negative number": lambda root: root["groups"].update(start=[-1, 50]),
    "a huge number": lambda root: root["groups"].update(rows=[2**63, 3]),
    "a fraction": lambda root: root["groups"].update(rows=[5.5, 3]),
    "more rows than a row group can have": lambda root: root["groups"].update(rows=[2**31 + 1, 3]),
    "an estimate of petabytes": lambda root: root["groups"].update(heap=[2**50, 3]),
    "a group beyond the data": lambda root: root["groups"].update(stop=[50, 901]),
    "a group that ends before it begins": lambda root: root["groups"].update(stop=[4, 90]),
    "a footer beyond the file": lambda root: root["files"].update(footer=[1000, 10]),
    "a hash with a digit too few": lambda root: root["files"].update(xxh3_128="0" * 63),
    "a hash with spaces": lambda root: root["files"].update(xxh3_128="0 " * 32),
    "a name twice": lambda root: root["files"].update(name=["a", "a"]),
    "a name outside": lambda root: root["files"].update(name=["a", "../b"]),
    "an absolute name": lambda root: root["files"].update(name=["a", "/b"]),
    "a URL": lambda root: root["files"].update(name=["a", "http://host/b"]),
    "a name with a line feed": lambda root: root["files"].update(name=["a", "b\n"]),
    "a type that is none": lambda root: root["columns"][0].update(type="int64[["),
    "a column twice": lambda root: root["columns"][1].update(name="a"),
    "no columns key": lambda root: root.pop("columns"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_contradiction_is_an_error(change: str) -> None:
    with pytest.raises(CorruptError, match="index"):
        parse(changed(CHANGES[change]))


@given(place=st.integers(0, len(TEXT) - 1), bit=st.integers(0, 7))
def test_every_flipped_bit_is_an_error(place: int, bit: int) -> None:
    data = bytearray(TEXT)
    data[place] ^= 1 << bit
    with pytest.raises(FormatError):
        parse(bytes(data))


@pytest.mark.parametrize("size", [0, 10, 40, len(TEXT) - 1])
def test_a_truncated_index_is_an_error(size: int) -> None:
    with pytest.raises(CorruptError):
        parse(TEXT[:size])


def test_an_unknown_type_is_unsupported() -> None:
    with pytest.raises(UnsupportedError, match="'later\\?' is not known"):
        parse(changed(lambda root: root["columns"][1].update(type="later?")))


def test_a_later_version_is_unsupported() -> None:
    with pytest.raises(UnsupportedError, match=re.escape("run `mdsx index parquet` again")):
        parse(TEXT.replace(b'"version":1', b'"version":2'))
