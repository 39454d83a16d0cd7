"""What an index of tars may say: names below its folder, numbers that agree, types that can be pointed to."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
import xxhash

import mdsx
from mdsx.foreign.tars import IndexedTar, build_text, is_wids, parse_text
from mdsx.format import Schema

SCHEMA = Schema.from_columns({"__key__": "str", "cls": "int64"})
TAR = IndexedTar("a/0.tar", 10240, "", "0" * 32, 3, "_mdsx-tars/x.mdsx", 1000, "1" * 32)


def sealed(text: str) -> bytes:
    """Return an index whose text up to the checksum is this one."""
    return f'{text},"checksum":"{xxhash.xxh3_64_hexdigest(text.encode())}"}}\n'.encode()


def test_an_index_is_read_as_it_was_written() -> None:
    tars = [TAR, replace(TAR, name="b.tar", hash=None, pointers="_mdsx-tars/y.mdsx", etag="e")]
    data = build_text(SCHEMA, tars, {"drop": ["md5"]})
    found = parse_text(data)
    assert list(found.tars) == tars
    assert found.schema.json == SCHEMA.json
    assert found.metadata == {"drop": ["md5"]}
    assert found.counts.tolist() == [3, 3]
    assert data == build_text(SCHEMA, tars, {"drop": ["md5"]})


@pytest.mark.parametrize(
    "change",
    [
        {"name": "../0.tar"},
        {"name": "/etc/passwd"},
        {"name": "s3://other/0.tar"},
        {"name": "http:0.tar"},
        {"name": "a//b.tar"},
        {"name": "a\\b.tar"},
        {"name": ""},
        {"pointers": "../x.mdsx"},
        {"pointers": "file:x"},
        {"size": -1},
        {"size": 2**63},
        {"samples": 0},
        {"samples": 2**40},
        {"pointers_size": 0},
        {"pointers_size": 2**40},
        {"hash": "x"},
        {"pointers_hash": "A" * 32},
    ],
)
def test_an_index_that_cannot_be_right_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(mdsx.CorruptError, match="mdsx index tar"):
        parse_text(build_text(SCHEMA, [replace(TAR, **change)]))


@pytest.mark.parametrize("name", ["0.tar.gz", "a/0.tgz", "0.tar.zst", "0.TAR.XZ"])
def test_an_index_of_compressed_tars_is_refused(name: str) -> None:
    with pytest.raises(mdsx.UnsupportedError, match="mdsx convert tar"):
        parse_text(build_text(SCHEMA, [replace(TAR, name=name)]))


def test_lists_and_unknown_types_are_refused() -> None:
    text = build_text(SCHEMA, [TAR]).decode().rpartition(',"checksum":')[0]
    for kind in ("str[*]", "complex64", "float64[99999,99999,99999]"):
        with pytest.raises(mdsx.MdsxError, match=r"cannot be read in place|not a column type"):
            parse_text(sealed(text.replace("int64", kind)))


def test_a_damaged_index_or_one_of_another_version_is_refused() -> None:
    data = build_text(SCHEMA, [TAR])
    for place in range(0, len(data), 7):
        with pytest.raises(mdsx.FormatError):
            parse_text(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
    with pytest.raises(mdsx.UnsupportedError, match="upgrade"):
        parse_text(data.replace(b'"version":1', b'"version":2'))
    names = data.decode().rpartition(',"checksum":')[0].replace('["a/0.tar"]', '["a/0.tar","b.tar"]')
    with pytest.raises(mdsx.CorruptError, match="contradicts itself"):
        parse_text(sealed(names))
    deep = data.decode().rpartition(',"checksum":')[0].replace('"metadata":{}', f'"metadata":{{"a":{"[" * 10**5}')
    with pytest.raises(mdsx.CorruptError):
        parse_text(sealed(deep))


def test_webdatasets_own_index_is_known() -> None:
    assert is_wids(json.dumps({"wids_version": 1, "shardlist": []}).encode())
    assert not is_wids(b'{"format":"mdsx","shardlist":1}')
    assert not is_wids(b'{"shards": [], "version": 2}')
