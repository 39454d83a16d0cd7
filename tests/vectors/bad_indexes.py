"""Indexes that break one rule each. Everything else is right, including checksum and fingerprint."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from typing import Any

import xxhash

from tests.format import reference
from tests.format.by_the_book import shard
from tests.format.reference import fingerprint, seal_index
from tests.vectors.bad_shards import WIDE
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
    if index.get("fingerprint") == _index(zstd)["fingerprint"]:
        with contextlib.suppress(LookupError, TypeError, ValueError, RecursionError):
            index["fingerprint"] = fingerprint(index)
    return seal_index(index)


def _top(**members: Any) -> bytes:
    return _changed(lambda index: index.update(members))


def _shards(zstd: bool = False, **members: Any) -> bytes:
    return _changed(lambda index: index["shards"].update(members), zstd)


def _text(old: str, new: str) -> bytes:
    """Return the index with other text."""
    text = json.dumps(_index(), separators=(",", ":")).removesuffix("}")
    assert text.count(old) == 1
    text = text.replace(old, new)
    with contextlib.suppress(LookupError, TypeError, ValueError, RecursionError):
        made = json.loads(text + "}")
        text = text.replace(made["fingerprint"], fingerprint(made))
    return seal_index(text)


def _files(*runs: list[Any]) -> bytes:
    return _shards(files=list(runs))


def vectors() -> list[Bad]:
    def bad(name: str, about: str, data: bytes, says: str) -> Bad:
        return Bad(f"bad/index-{name}.json", about, data, says)

    good, first, last = (
        seal_index(_index()),
        "its first bytes: this is no mdsx index",
        "its last bytes: the index is cut",
    )
    shards, big = _index()["shards"], 2**63
    return [
        bad("nothing", "An empty file.", b"", first),
        bad("cut", "The file lacks its second half.", good[: len(good) // 2], last),
        bad("list", "A list.", b"[]\n", first),
        bad("format", "Another format.", _top(format="mds"), first),
        bad("no-format", "No format.", _changed(lambda index: index.pop("format")), first),
        bad("version-0", "Version 0 has never been.", _top(version=0), "there is no such version"),
        bad("version-text", "A version that is no integer.", _top(version="1"), first),
        bad("version-float", "A version that is no integer.", _text('"version":1,', '"version":1.0,'), first),
        bad("version-zeros", "A version with a leading zero.", _text('"version":1,', '"version":01,'), first),
        bad("space-first", "A space before the version.", _text('"version":1', '"version": 1'), first),
        bad("line-feed-first", "A line feed at the beginning.", _text('{"format"', '\n{"format"'), first),
        bad("mark-first", "A byte order mark at the beginning.", _text('{"format"', '\ufeff{"format"'), first),
        bad("no-line-feed", "No line feed at the end.", good[:-1], last),
        bad("line-feeds", "Two line feeds at the end.", good + b"\n", last),
        bad("space-last", "A space before the last brace.", good[:-2] + b" }\n", last),
        bad("checksum", "Another checksum.", good[:-19] + b"0" * 16 + good[-3:], "checksum: the index is damaged"),
        bad("checksum-upper", "A checksum in upper case.", good[:-19] + good[-19:].upper(), last),
        bad("damaged", "A digit of a hash is another.", _flipped(), "checksum: the index is damaged"),
        bad("no-json", "A comma too many.", _text("{}", "{},"), "this is not JSON"),
        bad("deep", "20,000 brackets.", _text("{}", "[" * 20_000 + "]" * 20_000), "nested too deeply"),
        bad("no-utf-8", "No UTF-8 in a file's name.", _raw_bytes(), "this is not JSON: 'utf-8' codec"),
        bad("columns", "Columns that are no list.", _top(columns={"id": "uint16"}), "columns: "),
        bad("column-key", "A third key in a column.", _text('"type":"str"', '"type":"str","x":1'), "columns[1]: "),
        bad("column-no-type", "A column without a type.", _text(',"type":"str"', ""), "columns[1]: "),
        bad("column-name", "A control character in a column's name.", _text('"text"', '"te\x7ft"'), "the character"),
        bad("column-type", "Columns of a type that is none.", _text('"str"', '"str[2]"'), "a list has one dimension"),
        bad(
            "no-columns",
            "No columns.",
            _changed(lambda index: index.pop("columns")),
            "required field `columns`",
        ),
        bad("compression", "A compression that is no string.", _top(compression=1), "compression: "),
        bad(
            "rows-offset",
            "An offset of the rows that is no multiple of 64.",
            _top(rows_offset=136),
            "rows_offset: not after",
        ),
        bad("rows-offset-low", "Rows within the schema.", _top(rows_offset=64), "rows_offset: not after"),
        bad("rows-offset-high", "Rows behind any header.", _late_rows(), "rows_offset: not after"),
        bad("row-size", "Another row size.", _top(row_size=40), "row_size: not what the columns need"),
        bad("samples", "Another sum of samples.", _top(samples=3), "samples: not the sum over the shards"),
        bad(
            "samples-negative",
            "A negative number of samples.",
            _shards(samples=[-1, 3]),
            "shards.samples",
        ),
        bad(
            "samples-float",
            "A number of samples that is no integer.",
            _shards(samples=[1.0, 1]),
            "shards.samples",
        ),
        bad(
            "samples-2-63",
            "A number of samples of 2^63.",
            _shards(samples=[big, 1]),
            "shards.samples",
        ),
        bad("samples-nested", "An array in an array.", _shards(samples=[[1], 1]), "shards.samples"),
        bad(
            "samples-many", "More samples than the size can hold.", _many_samples(), "the size cannot hold the samples"
        ),
        bad(
            "samples-overflow",
            "So many samples that 64 bits overflow.",
            _many_samples(2**60),
            "the size cannot hold the samples",
        ),
        bad("samples-2-62", "2^62 samples.", _2_62_samples(), "more samples than an order can have"),
        bad("size-short", "A size too few.", _shards(size=[len(_SHARDS[0])]), "size: not as many shards"),
        bad("key-short", "A row key too few.", _shards(row_key=shards["row_key"][16:]), "row_key: not as many digits"),
        bad("key-upper", "Row keys in upper case.", _shards(row_key=shards["row_key"].upper()), "not lower-case"),
        bad("hash-short", "A hash too few.", _shards(xxh3_128=shards["xxh3_128"][32:]), "xxh3_128: not as many digits"),
        bad("hash-digits", "A hash of 31 digits.", _shards(xxh3_128=shards["xxh3_128"][1:]), "not as many digits"),
        bad("hash-upper", "Hashes in upper case.", _shards(xxh3_128=shards["xxh3_128"].upper()), "not lower-case"),
        bad("hash-letters", "A letter above f.", _shards(xxh3_128="g" + shards["xxh3_128"][1:]), "hexadecimal digits"),
        bad("hash-list", "Hashes in a list.", _shards(xxh3_128=[shards["xxh3_128"]]), "shards.xxh3_128: "),
        bad(
            "raw-where-plain",
            "Raw sizes, but no compression.",
            _shards(raw_size=shards["size"], raw_xxh3_128=shards["xxh3_128"]),
            "only a compressed dataset has",
        ),
        bad(
            "no-raw",
            "No raw sizes.",
            _changed(lambda i: [i["shards"].pop(key) for key in ("raw_size", "raw_xxh3_128")], True),
            "has no raw sizes or no raw hashes",
        ),
        bad(
            "raw-beyond-frames",
            "A compressed shard of 2^60 bytes, stored in a few.",
            _shards(True, raw_size=[2**60, 2**60]),
            "the stored size cannot hold its frames",
        ),
        bad(
            "raw-size-where-plain",
            "Raw sizes alone, but no compression.",
            _shards(raw_size=shards["size"]),
            "only a compr",
        ),
        bad(
            "no-raw-hash",
            "Raw sizes, but no raw hashes.",
            _no_raw_hash(),
            "has no raw sizes or no raw hashes",
        ),
        bad("size-of-fixed", "64 bytes more, but no variable-size column.", _fixed_only(), "cannot hold the samples"),
        bad(
            "files-longer", "A range whose second name has 513 bytes.", _files(["a" * 507, "", 99999, 2]), "may not be"
        ),
        bad("raw-short", "A raw size too few.", _shards(True, raw_size=[1]), "raw_size: not as many shards"),
        bad(
            "fingerprint",
            "Another fingerprint.",
            _top(fingerprint="0" * 32),
            "fingerprint: it is not that of these shards",
        ),
        bad("fingerprint-upper", "A fingerprint in upper case.", _upper_fingerprint(), "it is not that of"),
        bad("metadata-list", "Metadata that is no object.", _top(metadata=[]), "metadata: it is not an object"),
        bad("metadata-nan", "NaN in metadata.", _text("{}", '{"a":NaN}'), "this is not"),
        bad(
            "metadata-surrogate", "Half of a surrogate pair in metadata.", _text("{}", '{"a":"\\ude00"}'), "this is not"
        ),
        bad(
            "name-surrogate",
            "Half of a surrogate pair in a column's name.",
            _text('"name":"id"', '"name":"\\ud83d"'),
            "",
        ),
        bad("requires-text", "Required features that are no list.", _top(requires="x"), "requires: "),
        bad("requires-number", "A required feature that is no text.", _top(requires=[1]), "requires"),
        bad("files-count", "A file too few.", _files(["shard.", ".mdsx", 0, 1]), "files: not as many shards"),
        bad("files-huge", "2^62 files.", _files(["shard.", ".mdsx", 0, 2**62]), "files: not as many shards"),
        bad(
            "files-negative",
            "A negative count of files.",
            _files(["a", "", 0, 3], ["b", "", 0, -1]),
            "numbers out of range",
        ),
        bad("files-zero", "A run of 0 names.", _files(["a", "", 0, 2], ["b", "", 0, 0]), "numbers out of range"),
        bad("metadata-size", "Metadata of more than 1 MiB.", _top(metadata={"a": "x" * 2**20}), "it is too large"),
        bad(
            "metadata-size-by-1",
            "Metadata of 2^20 + 1 bytes.",
            _top(metadata={"a": "x" * (2**20 - 7)}),
            "it is too large",
        ),
        bad("schema-size", "Columns whose schema has more than 1 MiB.", _wide(), "more than 1 MiB"),
        bad("files-2-63", "first + count is 2^63.", _files(["shard.", ".mdsx", 2**63 - 2, 2]), "numbers out of range"),
        bad("files-form", "A run of three.", _files(["shard.", ".mdsx", 0]), "shards.files[0]: "),
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
        bad("lengths-list", "Sums of lengths in a list.", _top(lengths=[10]), "lengths: Expected `object`"),
        bad("lengths-2-63", "A sum of lengths of 2^63.", _top(lengths={"text": big}), "lengths"),
        bad("lengths-column", "A sum of lengths by no column.", _top(lengths={"other": 1}), "there is no such column"),
        bad(
            "lengths-sum",
            "A sum of lengths that is too large for the samples.",
            _top(lengths={"text": 2 * (2**32 - 1) + 1}),
            "cannot have that sum of lengths",
        ),
        Bad("unsupported/index-version-2.json", "A higher version.", _top(version=2), "the index is of version 2"),
        Bad(
            "unsupported/index-version-2-only.json",
            "A higher version, all else another.",
            b'{"format":"mdsx","version":18446744073709551616,\xff',
            "version 18446744073709551616",
        ),
        Bad(
            "unsupported/index-requires.json",
            "A required feature.",
            _top(requires=["a later feature"]),
            "requires 'a later feature', which is not known",
        ),
        Bad(
            "unsupported/index-requires-only.json",
            "A required feature, all else another.",
            seal_index('{"format":"mdsx","version":1,"requires":["sparse"],"columns":0,"shards":{}'),
            "requires 'sparse', which is not known",
        ),
        Bad(
            "unsupported/index-compression.json",
            "Another compression.",
            _top(compression="lz4"),
            "compression 'lz4' is not known",
        ),
    ]


def _flipped() -> bytes:
    """Return the index of a compressed dataset, whose fingerprint does not use the stored files' hashes."""
    digest = str(_index(True)["shards"]["xxh3_128"])
    return seal_index(_index(True)).replace(digest.encode(), (("0" if digest[0] != "0" else "1") + digest[1:]).encode())


def _no_raw_hash() -> bytes:
    """Return an index whose fingerprint is that of the stored files, as if there were no raw sizes either."""
    index = _index(True)
    size, _ = (index["shards"].pop(key) for key in ("raw_size", "raw_xxh3_128"))
    index["fingerprint"] = fingerprint(index)
    index["shards"]["raw_size"] = size
    return seal_index(index)


def _fixed_only() -> bytes:
    index = reference.index({"id": "uint16"}, [shard({"id": "uint16"}, [{"id": b"\1\0"}])])
    index["shards"]["size"][0] += 64
    index["fingerprint"] = fingerprint(index)
    return seal_index(index)


def _upper_fingerprint() -> bytes:
    return _changed(lambda index: index.update(fingerprint=index["fingerprint"].upper()))


def _raw_bytes() -> bytes:
    text = seal_index(_index()).replace(b"shard.", b"shard\xff").rpartition(b',"checksum"')[0]
    return text + b',"checksum":"' + xxhash.xxh3_64_hexdigest(text).encode() + b'"}\n'


def _late_rows() -> bytes:
    index = _index()
    index["rows_offset"], index["shards"]["size"] = 4288, [8192, 8192]
    index["fingerprint"] = fingerprint(index)
    return seal_index(index)


def _wide() -> bytes:
    return seal_index(reference.index(WIDE, [shard(WIDE, [dict.fromkeys(WIDE, b"\0")])]))


def _2_62_samples() -> bytes:
    """Return an index of 2^59 samples in each of 8 shards; a sample has no bytes."""
    index = reference.index({"id": "uint8[0]"}, [shard({"id": "uint8[0]"}, [{"id": b""}])] * 8)
    index["samples"] = 2**62
    index["shards"] |= {"samples": [2**59] * 8, "size": [index["rows_offset"] + 2**62] * 8}
    index["fingerprint"] = fingerprint(index)
    return seal_index(index)


def _many_samples(count: int = 100) -> bytes:
    """Return an index whose first shard claims `count` samples, with a fitting sum and fingerprint."""
    index = _index()
    index["samples"] = count + 1
    index["shards"]["samples"][0] = count
    index["fingerprint"] = fingerprint(index)
    return seal_index(index)
