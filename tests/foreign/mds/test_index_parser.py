"""An index is parsed strictly: every claim that needs no shard is checked, and errors name the place."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import xxhash

import mdsx
from mdsx.errors import CorruptError, UnsupportedError
from mdsx.foreign.mds import MdsFormat, MdsIndex
from tests.foreign.mds.plain import entry, index_bytes, shard_bytes, write_dataset

COLUMNS = {"id": "int", "text": "str"}
SAMPLES = [{"id": k, "text": "x" * k} for k in range(3)]
RAW = shard_bytes(COLUMNS, SAMPLES)
HASH = xxhash.xxh64_hexdigest(RAW)


def parse(data: bytes) -> MdsIndex:
    return MdsFormat().parse_index(data, file="index.json")


def entries(count: int = 2) -> list[dict[str, Any]]:
    return [entry(COLUMNS, f"shard.{k:05d}.mds", RAW, 3, ["xxh64"]) for k in range(count)]


def zipped(**fields: Any) -> Callable[[list[dict[str, Any]]], None]:
    def change(shards: list[dict[str, Any]]) -> None:
        shards[1]["compression"] = "zstd:7"
        shards[1]["zip_data"] = {"basename": "shard.00001.mds.zstd", "bytes": 60, "hashes": {}, **fields}

    return change


def put(*path: Any, value: Any) -> Callable[[list[dict[str, Any]]], None]:
    """Return a change of the second shard's object."""

    def change(shards: list[dict[str, Any]]) -> None:
        target: Any = shards[1]
        for key in path[:-1]:
            target = target[key]
        target[path[-1]] = value

    return change


def every(key: str, value: Any) -> Callable[[list[dict[str, Any]]], None]:
    def change(shards: list[dict[str, Any]]) -> None:
        for shard in shards:
            shard[key] = value

    return change


WRONG: dict[str, tuple[Callable[[list[dict[str, Any]]], object], type[Exception], str]] = {
    "no shards": (list.clear, CorruptError, "shards: the index has no shards"),
    "JSON lines": (put("format", value="json"), UnsupportedError, r"shards\[1\].format: .* not MDS .*json lines"),
    "CSV": (put("format", value="csv"), UnsupportedError, "not MDS"),
    "no such format": (put("format", value="a\n"), UnsupportedError, "not MDS"),
    "version of a shard": (put("version", value=3), UnsupportedError, r"shards\[1\].version"),
    "a text as number": (put("samples", value="3"), CorruptError, r"shards\[1\].samples: Expected `int`"),
    "a fraction": (put("samples", value=3.5), CorruptError, r"shards\[1\].samples"),
    "negative samples": (put("samples", value=-1), CorruptError, r"shards\[1\].samples"),
    "2^64 samples": (put("samples", value=2**64), CorruptError, r"shards\[1\].samples"),
    "more samples than bytes": (put("samples", value=2**32 - 1), CorruptError, "4294967295 samples"),
    "one sample too many": (put("samples", value=9), CorruptError, "the size is impossible"),
    "a raw size of 2^32": (put("raw_data", "bytes", value=2**32), CorruptError, r"shards\[1\].raw_data.bytes"),
    "negative bytes": (put("raw_data", "bytes", value=-5), CorruptError, r"shards\[1\].raw_data.bytes"),
    "other columns": (put("column_names", value=["id", "txt"]), UnsupportedError, "not those of the first shard"),
    "columns of other types": (put("column_encodings", value=["int", "bytes"]), UnsupportedError, "first shard"),
    "fewer sizes": (every("column_sizes", [8]), CorruptError, "the numbers of column names"),
    "more sizes": (put("column_sizes", value=[8, None, 8]), CorruptError, r"shards\[1\]: the numbers of column names"),
    "duplicate columns": (every("column_names", ["id", "id"]), CorruptError, "'id' is a duplicate"),
    "a column without a name": (every("column_names", ["", "text"]), CorruptError, "0 bytes"),
    "wrong size of a value": (every("column_sizes", [4, None]), CorruptError, r"column_sizes\[0\]: .*expected 8"),
    "a size of a text": (every("column_sizes", [8, 8]), CorruptError, r"column_sizes\[1\]"),
    "an array of 2^32 items": (
        every("column_encodings", ["ndarray:uint8:4294967296", "str"]), CorruptError, "span 2.31 bytes",
    ),
    "dimensions beyond 64 bits": (
        every("column_encodings", ["ndarray:float64:" + ",".join(["4294967295"] * 3), "str"]), CorruptError, "span",
    ),
    "an array of no items": (every("column_encodings", ["ndarray:int8:0", "str"]), CorruptError, "not an encoding"),
    "an array of text": (every("column_encodings", ["ndarray:str", "str"]), CorruptError, "not an encoding"),
    "a dimension of 5,000 digits": (
        every("column_encodings", ["ndarray:int8:" + "9" * 5000, "str"]), CorruptError, "not an encoding",
    ),
    "an unknown compression": (put("compression", value="lzma"), UnsupportedError, "compression: .*'lzma'"),
    "a compression without a file": (put("compression", value="zstd"), CorruptError, "zip_data"),
    "a file without a compression": (
        put("zip_data", value={"basename": "a", "bytes": 1, "hashes": {}}), CorruptError, "zip_data",
    ),
    "an unknown hash": (put("raw_data", "hashes", value={"crc": "00"}), UnsupportedError, "hashes: .*'crc'"),
    "a short hash": (put("raw_data", "hashes", "xxh64", value=HASH[1:]), CorruptError, "hashes.xxh64: .*16 lower"),
    "an upper-case hash": (put("raw_data", "hashes", "xxh64", value="A" * 16), CorruptError, "xxh64"),
    "a hash of another length": (put("raw_data", "hashes", value={"sha1": "0" * 42}), CorruptError, "sha1"),
    "a stored hash": (zipped(hashes={"md5": 5}), CorruptError, r"zip_data.hashes\[...\]"),
    "the same file twice": (put("raw_data", "basename", value="shard.00000.mds"), CorruptError, "the same file"),
    "a missing key": (lambda shards: shards[1].pop("raw_data"), CorruptError, "missing required field `raw_data`"),
    "a list as shard": (lambda shards: shards.append([]), CorruptError, r"shards\[2\]: Expected `object`"),  # type: ignore[arg-type]
}  # fmt: skip
NAMES = [
    "",
    "..",
    "../shard.mds",
    "a/../b",
    "/etc/passwd",
    "a//b",
    "a/",
    "./a",
    "a\\b",
    "a\0b",
    "a\nb",
    "a/" * 600 + "b",
]


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_index_is_refused_with_the_place(case: str) -> None:
    change, kind, says = WRONG[case]
    shards = entries()
    change(shards)
    with pytest.raises(kind, match=f"index.json: .*{says}"):
        parse(index_bytes(shards))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("compressed", [False, True])
def test_no_name_leads_out_of_the_folder(name: str, compressed: bool) -> None:
    shards = entries()
    (zipped(basename=name) if compressed else put("raw_data", "basename", value=name))(shards)
    with pytest.raises(CorruptError, match=r"shards\[1\].basename: this may not be a file's name"):
        parse(index_bytes(shards))


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b'{"shards": [', "not JSON"),
        (b'{"shards": [], "version": "2"}', "version: Expected `int`"),
        (b'{"shards": {}, "version": 2}', "shards: Expected `array`"),
        (b'{"shards": [' + b"[" * 100_000, "nested too deeply|not JSON"),
        (b'{"version": 2}', "missing required field `shards`"),
        (b'{"shards": [\xff], "version": 2}', "not JSON"),
    ],
)
def test_text_that_is_no_index_is_refused(data: bytes, says: str) -> None:
    assert MdsFormat().recognizes(data)
    with pytest.raises(CorruptError, match=says):
        parse(data)


@pytest.mark.parametrize("version", [0, 1, 3])
def test_another_version_is_unsupported(version: int) -> None:
    with pytest.raises(UnsupportedError, match=f"version: .*found {version}"):
        parse(json.dumps({"version": version, "shards": entries()}).encode())


def test_unknown_keys_and_any_order_are_read() -> None:
    shards = [dict(reversed(shard.items())) | {"new": [1]} for shard in entries()]
    data = json.dumps({"version": 2, "new": {}, "shards": shards}, indent=2).encode()
    assert MdsFormat().recognizes(data)
    index = parse(data)
    assert index.counts.tolist() == [3, 3]
    assert index.fingerprint == xxhash.xxh3_128_hexdigest(data)


def test_what_is_checked_is_said() -> None:
    shards = entries(3)
    assert parse(index_bytes(shards)).checks == "xxh64 of whole shards"
    shards[0]["raw_data"]["hashes"] = {}
    assert parse(index_bytes(shards)).checks.startswith("xxh64 of 2 of 3 shards; of the others only sizes")
    for shard in shards:
        shard["raw_data"]["hashes"] = {}
    assert parse(index_bytes(shards)).checks == "only sizes and structure, because the index has no hashes"


def test_a_large_index_is_parsed_in_seconds() -> None:
    shards, one = 20_000, json.dumps(entries(1)[0])
    text = ",".join(one.replace("00000", f"{k:05d}") for k in range(shards))
    began = time.process_time()
    index = parse(f'{{"shards": [{text}], "version": 2}}'.encode())
    assert time.process_time() - began < 5
    assert len(index.counts) == shards


def test_a_dataset_of_json_lines_says_so(tmp_path: Path) -> None:
    write_dataset(tmp_path, COLUMNS, [SAMPLES])
    text = (tmp_path / "index.json").read_text().replace('"mds"', '"json"')
    (tmp_path / "index.json").write_text(text)
    with pytest.raises(mdsx.UnsupportedError, match=r"not MDS shards.*json lines.*mdsx\.Writer"):
        mdsx.Dataset(tmp_path)
