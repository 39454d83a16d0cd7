"""Indexes that break one rule each; all else in them is right, the checksum included."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import xxhash

from tests.format import reference
from tests.format.by_the_book import shard
from tests.format.reference import seal_index
from tests.vectors.vector import Bad

_COLUMNS = {"id": "uint16", "text": "str"}
_SHARDS = [shard(_COLUMNS, [{"id": b"\1\0", "text": text}]) for text in (b"one", b"three")]
_STORED = [reference.compressed(raw) for raw in _SHARDS]

Object = dict[str, Any]


def _index(zstd: bool = False, columns: dict[str, str] = _COLUMNS) -> Object:
    return reference.index(columns, _STORED if zstd else _SHARDS, _SHARDS if zstd else None)


def _changed(change: Callable[[Object], object], zstd: bool = False) -> bytes:
    index = _index(zstd)
    change(index)
    return seal_index(index)


def _top(**members: Any) -> bytes:
    return _changed(lambda index: index.update(members))


def _shards(zstd: bool = False, **members: Any) -> bytes:
    return _changed(lambda index: index["shards"].update(members), zstd)


def _text(old: str, new: str) -> bytes:
    """With other text in the index's one form."""
    text = seal_index(_index()).decode()
    assert text.count(old) == 1
    return seal_index(text.replace(old, new))


def _files(*runs: list[Any]) -> bytes:
    return _shards(files=list(runs))


def vectors() -> list[Bad]:
    def bad(name: str, about: str, data: bytes, says: str) -> Bad:
        return Bad(f"bad/index-{name}.json", about, data, says)

    good, one_form = seal_index(_index()), "not in its one form"
    hashes: list[str] = _index()["shards"]["xxh3_128"]
    big = 2**63
    return [
        bad("nothing", "An empty file.", b"", "this is not a JSON object"),
        bad("cut", "The file lacks its second half.", good[: len(good) // 2], "this is not a JSON object"),
        bad("list", "A list.", b"[]\n", "this is not a JSON object"),
        bad("deep", "20,000 brackets.", b'{"format":' + b"[" * 20_000, "nested too deeply"),
        bad("format", "Another format.", _top(format="mds"), "this is no mdsx index"),
        bad("no-format", "No format.", b"{}\n", "format: the key is missing"),
        bad("version-0", "Version 0 has never been.", _top(version=0), "there is no such version"),
        bad("version-text", "A version that is no integer.", _top(version="1"), "version: this is not an integer"),
        bad(
            "version-float", "A version that is no integer.", _text('"version":1,', '"version":1.0,'), "not an integer"
        ),
        bad("space", "A space between members.", _text(',"version"', ', "version"'), one_form),
        bad("space-in-shards", "A space between members.", _text('"size":', '"size": '), one_form),
        bad(
            "space-in-numbers",
            "A space between numbers.",
            _text('"samples":[1,', '"samples":[1, '),
            "shards.samples: this",
        ),
        bad("space-in-hashes", "A space between hashes.", _space(), "shards.xxh3_128: this"),
        bad("no-line-feed", "No line feed at the end.", seal_index(good.decode()[:-1]), one_form),
        bad("line-feeds", "Two line feeds at the end.", seal_index(good.decode() + "\n"), one_form),
        bad("line-feed-first", "A line feed at the beginning.", seal_index("\n" + good.decode()), one_form),
        bad("escape", "A needless escape in a key.", _text('"metadata"', '"met\\u0061data"'), one_form),
        bad(
            "key-twice",
            "A key twice.",
            _text('"metadata":{}', '"metadata":{},"metadata":{}'),
            "'metadata' stands twice",
        ),
        bad(
            "key-twice-other",
            "A key twice, with other values.",
            _text('"row_size":', '"row_size":8,"row_size":'),
            "stands twice",
        ),
        bad(
            "key-twice-in-shards",
            "A key twice in `shards`.",
            _text('"size":', '"size":[1],"size":'),
            "'size' stands twice",
        ),
        bad("key-twice-in-metadata", "A key twice in `metadata`.", _text("{}", '{"a":1,"a":1}'), "'a' stands twice"),
        bad("checksum", "Another checksum.", good.replace(_digits(good), b"0" * 16), "checksum: the index is damaged"),
        bad(
            "checksum-upper",
            "A checksum in upper case.",
            good.replace(_digits(good), _digits(good).upper()),
            "not a checksum",
        ),
        bad("damaged", "A digit of a hash is another.", _flipped(good, hashes[0]), "checksum: the index is damaged"),
        bad("no-utf-8", "No UTF-8.", _raw_bytes(), "the index is not UTF-8"),
        bad("columns", "A schema with a space.", _text(',"type":"str"', ', "type":"str"'), "not canonical JSON"),
        bad("column-type", "Columns of a type that is none.", _text('"str"', '"str[2]"'), "a list has one dimension"),
        bad("no-columns", "No columns.", _changed(lambda index: index.pop("columns")), "columns: the key is missing"),
        bad(
            "compression", "A compression that is no string.", _top(compression=1), "compression: this is not a string"
        ),
        bad(
            "rows-offset",
            "An offset of the rows that is no multiple of 64.",
            _top(rows_offset=136),
            "rows_offset: not behind",
        ),
        bad("rows-offset-low", "Rows within the schema.", _top(rows_offset=64), "rows_offset: not behind"),
        bad("rows-offset-high", "Rows behind any header.", _top(rows_offset=4288), "rows_offset: not behind"),
        bad("row-size", "Another row size.", _top(row_size=40), "row_size: not what the columns need"),
        bad("samples", "Another sum of samples.", _top(samples=3), "samples: not the sum over the shards"),
        bad(
            "samples-negative",
            "A negative number of samples.",
            _shards(samples=[-1, 3]),
            "shards.samples: this is not an array",
        ),
        bad(
            "samples-float",
            "A number of samples that is no integer.",
            _shards(samples=[1.0, 1]),
            "shards.samples: this is not",
        ),
        bad(
            "samples-2-63",
            "A number of samples of 2^63.",
            _shards(samples=[big, 1]),
            "shards.samples: this is not an array",
        ),
        bad(
            "samples-nested", "An array in an array.", _shards(samples=[[1], 1]), "shards.samples: this is not an array"
        ),
        bad(
            "samples-many", "More samples than the size can hold.", _many_samples(), "the size cannot hold the samples"
        ),
        bad(
            "samples-overflow",
            "So many samples that 64 bits overflow.",
            _many_samples(2**60),
            "the size cannot hold the samples",
        ),
        bad("samples-2-62", "2^62 samples.", _many_samples(2**62), "more samples than an order can have"),
        bad("size-short", "A size too few.", _shards(size=[len(_SHARDS[0])]), "size: not as many shards"),
        bad("hash-short", "A hash too few.", _shards(xxh3_128=hashes[:1]), "xxh3_128: not as many shards"),
        bad(
            "hash-digits",
            "A hash of 31 digits.",
            _shards(xxh3_128=[hashes[0], hashes[1][1:]]),
            "shards.xxh3_128: this is not",
        ),
        bad(
            "hash-upper",
            "A hash in upper case.",
            _shards(xxh3_128=[hashes[0], "A" * 32]),
            "shards.xxh3_128: this is not",
        ),
        bad(
            "raw-where-plain",
            "Raw sizes, but no compression.",
            _shards(raw_size=[1, 1]),
            "only where the dataset is compressed",
        ),
        bad(
            "no-raw",
            "No raw sizes.",
            _changed(lambda i: i["shards"].pop("raw_size"), True),
            "shards.raw_size: the key is missing",
        ),
        bad(
            "raw-beyond-frames",
            "A compressed shard of 2^60 bytes, stored in a few.",
            _shards(True, raw_size=[2**60, 2**60]),
            "the stored size cannot hold its frames",
        ),
        bad("raw-short", "A raw size too few.", _shards(True, raw_size=[1]), "raw_size: not as many shards"),
        bad(
            "fingerprint",
            "Another fingerprint.",
            _top(fingerprint="0" * 32),
            "fingerprint: it is not that of these shards",
        ),
        bad(
            "fingerprint-short",
            "A fingerprint of 31 digits.",
            _top(fingerprint="0" * 31),
            "fingerprint: this is not a hash",
        ),
        bad("metadata-list", "Metadata that is no object.", _top(metadata=[]), "metadata: it is not an object"),
        bad("metadata-nan", "NaN in metadata.", _text("{}", '{"a":NaN}'), "this is not"),
        bad("files-count", "A file too few.", _files(["shard.", ".mdsx", 0, 1]), "files: not as many shards"),
        bad("files-huge", "2^62 files.", _files(["shard.", ".mdsx", 0, 2**62]), "files: not as many shards"),
        bad(
            "files-negative",
            "A negative count of files.",
            _files(["a", "", 0, 3], ["b", "", 0, -1]),
            "numbers out of range",
        ),
        bad("files-2-63", "Numbers beyond 2^63.", _files(["a", "", 2**63 - 1, 2]), "numbers out of range"),
        bad("files-form", "A run of three.", _files(["shard.", ".mdsx", 0]), "this is not a list of"),
        bad("files-up", "A name that leads outside.", _files(["../shard.", ".mdsx", 0, 2]), "may not be a file's name"),
        bad(
            "files-root",
            "A name that begins with a slash.",
            _files(["/shard.", ".mdsx", 0, 2]),
            "may not be a file's name",
        ),
        bad("files-slashes", "Two slashes.", _files(["a//", ".mdsx", 0, 2]), "may not be a file's name"),
        bad("files-slash-last", "A name that ends with a slash.", _files(["a", "/", 0, 2]), "may not be a file's name"),
        bad(
            "files-dot",
            "A component that begins with a dot.",
            _files(["a/.b", ".mdsx", 0, 2]),
            "may not be a file's name",
        ),
        bad("files-backslash", "A backslash in a name.", _files(["a\\", ".mdsx", 0, 2]), "may not be a file's name"),
        bad("files-space", "A space in a name.", _files(["a b", ".mdsx", 0, 2]), "may not be a file's name"),
        bad("files-unicode", "A letter that is not ASCII.", _files(["é", ".mdsx", 0, 2]), "may not be a file's name"),
        bad(
            "files-line-feed",
            "A line feed at a name's end.",
            _files(["a", ".mdsx\n", 0, 2]),
            "may not be a file's name",
        ),
        bad("files-long", "A name of 513 bytes.", _files(["a" * 508, "", 0, 2]), "may not be a file's name"),
        Bad("unsupported/index-version-2.json", "A higher version.", _top(version=2), "the index is of version 2"),
        Bad(
            "unsupported/index-version-2-only.json",
            "A higher version, all else another.",
            b'{"version": 2, "format": "mdsx"}',
            "version 2",
        ),
        Bad(
            "unsupported/index-compression.json",
            "Another compression.",
            _top(compression="lz4"),
            "compression 'lz4' is not known",
        ),
    ]


def _digits(index: bytes) -> bytes:
    return str(json.loads(index)["checksum"]).encode()


def _flipped(index: bytes, digest: str) -> bytes:
    return index.replace(digest.encode(), (digest[:-1] + ("0" if digest[-1] != "0" else "1")).encode())


def _space() -> bytes:
    first, second = _index()["shards"]["xxh3_128"]
    return _text(f'"{first}","{second}"', f'"{first}", "{second}"')


def _raw_bytes() -> bytes:
    """A byte that is no UTF-8 in the value of an unknown key, which nobody would look at."""
    index = {"future": "?", **_index()}
    text = seal_index(index).replace(b'"?"', b'"\xff"')
    zeros = text.replace(_digits(seal_index(index)), b"0" * 16)
    return zeros.replace(b"0" * 16, xxhash.xxh3_64_hexdigest(zeros).encode())


def _many_samples(count: int = 100) -> bytes:
    """The first shard claims `count` samples; sum and fingerprint agree with that."""
    index = _index()
    index["samples"] = count + 1
    index["shards"]["samples"][0] = count
    sizes, digests = index["shards"]["size"], index["shards"]["xxh3_128"]
    text = json.dumps(index["columns"], separators=(",", ":"))
    text += f"\n{count} {sizes[0]} {digests[0]}\n1 {sizes[1]} {digests[1]}"
    index["fingerprint"] = xxhash.xxh3_128_hexdigest(text.encode())
    return seal_index(index)
