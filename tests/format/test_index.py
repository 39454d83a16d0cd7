"""The index: its content, its checks, and its cost in time and memory."""

from __future__ import annotations

import contextlib
import json
import struct
import subprocess
import sys
import time
import tracemalloc
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from mdsx.errors import CorruptError, FormatError, UnsupportedError, UsageError
from mdsx.format import (
    MAX_SHARDS,
    Schema,
    ShardEntry,
    build_index,
    check_shard_count,
    is_name,
    join_indexes,
    parse_index,
)
from mdsx.format.filenames import runs_of, split_name
from mdsx.format.frames import seek_table_size
from mdsx.format.index import exact_sum, fingerprint_of
from mdsx.format.index_parser import MdsxFormat
from mdsx.format.index_writer import fitting_shard_size
from tests.format import by_the_book, reference

COLUMNS = {"id": "uint16", "text": "str"}
SCHEMA = Schema.from_columns(COLUMNS)
RAW = [by_the_book.shard(COLUMNS, [{"id": b"\1\0", "text": text}] * 2) for text in (b"one", b"three")]
STORED = [reference.compressed(shard) for shard in RAW]


def entries(stored: list[bytes], raw: list[bytes], suffix: str) -> list[ShardEntry]:
    return [
        ShardEntry(
            name=f"shard.{number:05d}{suffix}",
            samples=2,
            row_key=reference.get(b, "row_key"),
            size=len(a),
            hash=xxhash.xxh3_128_hexdigest(a),
            raw_size=len(b),
            raw_hash=xxhash.xxh3_128_hexdigest(b),
        )
        for number, (a, b) in enumerate(zip(stored, raw, strict=True))
    ]


PLAIN, ZSTD = entries(RAW, RAW, ".mdsx"), entries(STORED, RAW, ".mdsx.zst")


def test_an_uncompressed_datasets_index_equals_the_reference() -> None:
    data = build_index(SCHEMA, None, PLAIN, {"from": "héllo"})
    assert data == reference.seal_index(reference.index(COLUMNS, RAW, metadata={"from": "héllo"}))
    index = parse_index(data)
    assert [index.shard_entry(shard) for shard in range(2)] == PLAIN
    assert (index.schema, index.compression, index.samples) == (SCHEMA, None, 4)
    assert index.rows_offset == SCHEMA.rows_offset
    assert index.metadata == {"from": "héllo"}
    assert index.raw_sizes is index.sizes


def test_a_compressed_datasets_index_equals_the_reference() -> None:
    data = build_index(SCHEMA, "zstd", ZSTD)
    assert data == reference.seal_index(reference.index(COLUMNS, STORED, RAW))
    index = parse_index(data)
    assert [index.shard_entry(shard) for shard in range(2)] == ZSTD
    assert (index.hash(1), index.raw_hash(1)) == (ZSTD[1].hash, ZSTD[1].raw_hash)
    assert index.counts.tolist() == [2, 2]


def test_compressing_or_moving_a_dataset_keeps_its_fingerprint() -> None:
    def fingerprint(shards: list[ShardEntry], compression: str | None = None) -> str:
        return parse_index(build_index(SCHEMA, compression, shards)).fingerprint

    moved = [entry._replace(name=f"elsewhere/{entry.name}") for entry in PLAIN]
    records = b"".join(struct.pack("<QQ", 2, len(raw)) + xxhash.xxh3_128_digest(raw) for raw in RAW)
    known = xxhash.xxh3_128_hexdigest(SCHEMA.json + records)
    assert fingerprint(PLAIN) == fingerprint(ZSTD, "zstd") == fingerprint(moved) == known
    assert fingerprint(PLAIN[::-1]) != known


def test_any_changed_byte_is_found() -> None:
    data = build_index(SCHEMA, "zstd", ZSTD, {"a": 1})
    for place in range(len(data)):
        for change in (1, 2, 0x20, 0x80):
            with pytest.raises(FormatError):
                parse_index(data[:place] + bytes([data[place] ^ change]) + data[place + 1 :])
        with pytest.raises(CorruptError):
            parse_index(data[:place])


def test_a_required_feature_is_found_however_its_key_is_written() -> None:
    text = json.dumps(reference.index(COLUMNS, RAW), separators=(",", ":")).removesuffix("}")
    with pytest.raises(UnsupportedError, match="requires 'x', which is not known"):
        parse_index(reference.seal_index(text + r',"requ\u0069res":["x"]'))


def test_digits_may_be_escaped() -> None:
    text = json.dumps(reference.index(COLUMNS, RAW), separators=(",", ":")).removesuffix("}")
    for key in ("row_key", "xxh3_128"):
        head, tail = text.split(f'"{key}":"')
        text = f'{head}"{key}":"\\u{ord(tail[0]):04x}{tail[1:]}'
    index = parse_index(reference.seal_index(text))
    assert [index.shard_entry(shard) for shard in range(2)] == PLAIN


def test_the_largest_compressed_shard_fits_into_an_index() -> None:
    largest = ZSTD[0]._replace(raw_size=2**47, size=seek_table_size(2**47))
    assert parse_index(build_index(SCHEMA, "zstd", [largest])).shard_entry(0) == largest
    for wrong in (largest._replace(raw_size=2**47 + 1, size=2**60), largest._replace(size=largest.size - 1)):
        with pytest.raises(CorruptError, match="the stored size cannot hold its frames"):
            parse_index(build_index(SCHEMA, "zstd", [wrong]))


def test_a_long_name_of_a_column_is_cut_in_errors() -> None:
    with pytest.raises(CorruptError) as caught:
        parse_index(reference.seal_index(reference.index(COLUMNS, RAW) | {"lengths": {"x" * 81: 1}}))
    assert caught.value.place == f"lengths['{'x' * 80}']"


def test_the_format_recognizes_its_index_and_names_its_file() -> None:
    data = build_index(SCHEMA, None, PLAIN)
    found = [MdsxFormat().recognizes(each) for each in (data, data[:20], b" " + data, b'{"format":"mds"')]
    assert found == [True, True, False, False]
    assert MdsxFormat().parse_index(data, file="x").samples == 4
    with pytest.raises(CorruptError) as caught:
        MdsxFormat().parse_index(data[:-1], file="x")
    assert caught.value.file == "x"


def test_a_wrong_raw_hash_is_named() -> None:
    index = reference.index(COLUMNS, STORED, RAW)
    index["shards"]["raw_xxh3_128"] = "0"
    with pytest.raises(CorruptError) as caught:
        parse_index(reference.seal_index(index))
    assert caught.value.place == "shards.raw_xxh3_128"


def test_the_arrays_of_an_index_are_read_only() -> None:
    index = parse_index(build_index(SCHEMA, "zstd", ZSTD))
    arrays: list[NDArray[Any]] = [
        index.counts,
        index.row_keys,
        index.sizes,
        index.hashes,
        index.raw_sizes,
        index.raw_hashes,
        index.firsts,
    ]
    assert not any(array.flags.writeable for array in arrays)


def test_unknown_keys_are_ignored_anywhere() -> None:
    known = reference.index(COLUMNS, RAW)
    for place in range(2, len(known) + 1):
        members = list(known.items())
        members.insert(place, ("future", {"a": [1, {"b": None}]}))
        assert parse_index(reference.seal_index(dict(members))).samples == 4


def test_a_larger_header_moves_the_rows() -> None:
    index = reference.index(COLUMNS, RAW)
    moved = 4096 - 64
    index["rows_offset"] += moved
    index["shards"]["size"] = [size + moved for size in index["shards"]["size"]]
    index["fingerprint"] = reference.fingerprint(index)
    assert parse_index(reference.seal_index(index)).rows_offset == SCHEMA.rows_offset + moved


@pytest.mark.parametrize(
    ("metadata", "says"),
    [
        ([], "must be a dict"),
        ({"a": float("nan")}, "cannot be written"),
        ({"a": b"bytes"}, "cannot be written"),
        ({1: "a"}, "keys that are str"),
        ({"a": [{"b": {None: 1}}]}, "keys that are str"),
        ({"a": "\ud800"}, "cannot be written"),
        ({"a": "x" * 2**20}, "too large"),
    ],
)
def test_invalid_metadata_raises_usage_error(metadata: Any, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        build_index(SCHEMA, None, PLAIN, metadata)


def test_metadata_may_have_one_mib() -> None:
    largest = {"a": "x" * (2**20 - len('{"a":""}'))}
    assert parse_index(build_index(SCHEMA, None, PLAIN, largest)).metadata == largest
    index = reference.index(COLUMNS, RAW, metadata={"a": largest["a"] + "x"})
    with pytest.raises(CorruptError, match="metadata: it is too large"):
        parse_index(reference.seal_index(index))


def test_an_uncompressed_shard_has_no_raw_hash_of_its_own() -> None:
    with pytest.raises(UsageError, match="uncompressed"):
        build_index(SCHEMA, None, ZSTD)


# --- lengths


def test_lengths_without_sums_are_estimated_from_the_heaps() -> None:
    """The rows of eight of these samples end at a multiple of 64 bytes, and so without padding before the heap."""
    raw = [by_the_book.shard(COLUMNS, [{"id": b"\0\0", "text": b"abc"}] * count) for count in range(1, 9)]
    made = [entry._replace(samples=1 + number) for number, entry in enumerate(entries(raw, raw, ".mdsx"))]
    for shards in (made, made[:1]):
        index = parse_index(build_index(SCHEMA, None, shards))
        assert [index.mean_length(column) for column in range(2)] == [None, 3]
        assert index.total_length(1) is None
    assert parse_index(build_index(SCHEMA, None, [])).mean_length(1) == 0


def test_sums_of_lengths_give_exact_means() -> None:
    columns = {"text": "str", "more": "str", "pair": "int8[2]"}
    schema = Schema.from_columns(columns)
    raw = [by_the_book.shard(columns, [{"text": text, "more": b"d", "pair": b"ab"}]) for text in (b"abcd", b"ab")]
    shards = [entry._replace(samples=1) for entry in entries(raw, raw, ".mdsx")]
    index = parse_index(build_index(schema, None, shards, lengths={"text": 6, "pair": 4}))
    assert [index.mean_length(column) for column in range(3)] == [3, 4, 2]
    assert [index.total_length(column) for column in range(3)] == [6, None, 4]
    one = parse_index(build_index(schema, None, shards[:1], lengths={"text": 4}))
    assert one.mean_length(0) == 4
    empty = parse_index(build_index(schema, None, [], lengths={"text": 0, "pair": 0}))
    assert [empty.mean_length(column) for column in range(3)] == [0, 0, 2]


def test_rows_are_read_alone_only_if_a_shard_has_more_than_rows() -> None:
    assert SAMPLES.read_rows(0, file="x") is not None
    assert parse_index(build_index(Schema.from_columns({"id": "int8"}), None, [])).read_rows(0, file="x") is None


# --- damage

SAMPLES = parse_index(build_index(SCHEMA, "zstd", ZSTD))


def test_a_list_of_too_many_problems_names_the_file() -> None:
    columns, count = {"a": "uint8"}, 1500
    raw = by_the_book.shard(columns, [{"a": b"\1"}] * count)
    shards = [entry._replace(samples=count) for entry in entries([raw], [raw], ".mdsx")]
    index = parse_index(build_index(Schema.from_columns(columns), None, shards))
    size, start = reference.get(raw, "row_size"), reference.rows_offset(raw) + 8
    damaged = bytearray(raw)
    damaged[start : start + count * size : size] = b"\2" * count
    last = index.check(0, bytes(damaged), file="x")[-1]
    assert str(last) == "x: there are more than 1000 problems"


def test_a_shard_is_checked_against_its_entry() -> None:
    assert SAMPLES.check(1, RAW[1], file="x") == []
    damaged = RAW[1][:-1] + b"!"
    (problem,) = SAMPLES.check(1, damaged, file="x")
    assert (problem.file, problem.place) == ("x", "sample 1")
    others = {
        "row key": RAW[0],
        "schema": by_the_book.shard({"id": "int16"}, [{"id": b"\1\0"}] * 2),
        "number of samples, offset of the rows, size": reference.enlarged(RAW[1], 4096),
    }
    for place, other in others.items():
        (problem,) = SAMPLES.check(1, other, file="x")
        assert (problem.file, problem.place) == ("x", place)
    SAMPLES.verify(1, SAMPLES.open(1, RAW[1], file="x"), file="x")
    with pytest.raises(CorruptError, match=r"^x: sample 1: its checksum does not match its bytes"):
        SAMPLES.verify(1, SAMPLES.open(1, damaged, file="x"), file="x")


def test_damage_names_the_numbers_of_samples_in_the_dataset() -> None:
    stored = STORED[1]
    damage = SAMPLES.find_damage(1, memoryview(stored[:10]), size=10, file="x", first=500)
    assert [(problem.file, problem.place) for problem in damage] == [("x", "frame 0"), ("x", "byte 10")]
    assert "it holds samples 0-1 (500-501 of the dataset)" in damage[0].message
    (problem,) = SAMPLES.find_damage(1, memoryview(stored), size=len(stored) + 1, file="x", first=None)
    assert (problem.file, problem.place) == ("x", f"byte {len(stored)}")
    assert SAMPLES.find_damage(1, memoryview(stored), size=len(stored), file="x", first=None) == []


def test_another_shards_bytes_are_named() -> None:
    index = parse_index(build_index(SCHEMA, None, [*PLAIN, PLAIN[1]._replace(name="shard.00009.mdsx")]))
    (problem,) = index.find_damage(0, memoryview(RAW[1]), size=len(RAW[1]), file="x", first=None)
    assert problem.message == "is not the shard that the index names, but shard.00001.mdsx"
    assert (problem.file, problem.place) == ("x", "row key")
    assert (problem.found, problem.expected) == (f"{PLAIN[1].row_key:016x}", f"{PLAIN[0].row_key:016x}")
    other = by_the_book.shard(COLUMNS, [{"id": b"\1\0", "text": b"new"}] * 2)
    (problem,) = index.find_damage(0, memoryview(other), size=len(other), file="x", first=None)
    assert problem.message == "is not the shard that the index names"


@pytest.mark.parametrize(
    ("entry", "found"),
    [(ZSTD[0]._replace(hash="0" * 32), ZSTD[0].hash), (ZSTD[0]._replace(raw_hash="0" * 32), ZSTD[0].raw_hash)],
)
def test_right_content_with_another_hash_is_a_problem(entry: ShardEntry, found: str) -> None:
    index = parse_index(build_index(SCHEMA, "zstd", [entry]))
    (problem,) = index.find_damage(0, memoryview(STORED[0]), size=len(STORED[0]), file="x", first=None)
    assert "although their content is right" in problem.message
    assert (problem.file, problem.place, problem.found, problem.expected) == ("x", "XXH3-128", found, "0" * 32)


def test_sums_may_be_2_to_63_or_more() -> None:
    assert exact_sum(np.array([2**63 - 1, 2**63 - 1, 2**32 + 1, 5])) == 2 * (2**63 - 1) + 2**32 + 6
    assert exact_sum(np.zeros(0, np.int64)) == 0


# --- file names


@pytest.mark.parametrize("name", ["shard.00000.mdsx", "a/b/c-1_2.x", "0", "a" * 512, "A/0..b/C-"])
def test_valid_file_names_are_accepted(name: str) -> None:
    assert is_name(name)


@pytest.mark.parametrize(
    "name", ["", "/a", "a/", "a//b", ".", "..", "a/../b", "-a", "_a", "a b", "é", "a\n", "a" * 513, "a\\b"]
)
def test_invalid_file_names_are_refused(name: str) -> None:
    assert not is_name(name)


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("shard.00007.mdsx.zst", ("shard.", ".mdsx.zst", 7)),
        ("shard.123456.mdsx", ("shard.", ".mdsx", 123456)),
        ("part-00017/shard.00002.mdsx", ("part-00017/shard.", ".mdsx", 2)),
        ("part-00017/shard.2.mdsx", ("part-", "/shard.2.mdsx", 17)),
        ("00000000012", ("000000", "", 12)),
        ("shard.0001.mdsx", None),
    ],
)
def test_a_names_number_is_its_last_long_run_of_digits(name: str, parts: object) -> None:
    assert split_name(name) == parts


def test_file_names_become_the_fewest_runs() -> None:
    names = ["a/shard.99999.mdsx", "a/shard.100000.mdsx", "b/shard.00000.mdsx", "b/shard.00002.x"]
    expected = [("a/shard.", ".mdsx", 99999, 2), ("b/shard.", ".mdsx", 0, 1), ("b/shard.", ".x", 2, 1)]
    assert runs_of(names) == expected
    made = [PLAIN[0]._replace(name=name) for name in names]
    index = parse_index(build_index(SCHEMA, None, made))
    assert [index.name(shard) for shard in range(4)] == names
    for outside in (-1, 4):
        with pytest.raises(IndexError):
            index.name(outside)


def test_joined_indexes_equal_the_index_of_all_entries() -> None:
    """Numbers that continue in the same folder become one run, as in an index that one writer wrote."""
    for compression, made in ((None, PLAIN), ("zstd", ZSTD)):
        names = [[f"shard.{number:05d}.mdsx" for number in numbers] for numbers in ((0, 1), (2, 3), (99999, 100000))]
        parts, whole = [], []
        for folder, some in zip(("part-00000", "part-00000", "part-00001-0123456789abcdef"), names, strict=True):
            entries = [entry._replace(name=name) for entry, name in zip(made, some, strict=True)]
            parts.append((folder, parse_index(build_index(SCHEMA, compression, entries))))
            whole += [entry._replace(name=f"{folder}/{entry.name}") for entry in entries]
        joined = join_indexes(SCHEMA, compression, parts, {"a": 1})
        assert joined == build_index(SCHEMA, compression, whole, {"a": 1})
        assert list(parse_index(joined).shard_names()) == [entry.name for entry in whole]
        assert list(parse_index(joined).shard_names("a/b")) == [f"a/b/{entry.name}" for entry in whole]
        assert len(parse_index(joined).files) == 2
    assert join_indexes(SCHEMA, None, []) == build_index(SCHEMA, None, [])


def test_joined_indexes_have_the_sums_of_lengths_that_all_of_them_have() -> None:
    sums: list[dict[str, int]] = [{"text": 3, "id": 1}, {"text": 5}]
    parts = [
        (f"part-{number:05d}", parse_index(build_index(SCHEMA, None, PLAIN, lengths=each)))
        for number, each in enumerate(sums)
    ]
    assert parse_index(join_indexes(SCHEMA, None, parts)).lengths == {"text": 8}
    assert parse_index(join_indexes(SCHEMA, None, parts, lengths={"id": 2})).lengths == {"id": 2}


def test_a_sum_of_lengths_that_an_index_cannot_hold_is_left_out() -> None:
    assert b'"lengths":{"text":9223372036854775807}' in build_index(SCHEMA, None, PLAIN, lengths={"text": 2**63 - 1})
    assert b'"lengths"' not in build_index(SCHEMA, None, PLAIN, lengths={"text": 2**63})


def test_a_joined_name_that_no_shard_can_have_is_a_usage_error() -> None:
    index = parse_index(build_index(SCHEMA, None, PLAIN))
    with pytest.raises(UsageError, match="not a valid name"):
        join_indexes(SCHEMA, None, [("_part", index)])


@pytest.mark.parametrize("name", ["../shard.00000.mdsx", "shard.mdsx", "", f"shard.{2**63}.mdsx", "é00000"])
def test_a_shard_of_another_name_is_a_usage_error(name: str) -> None:
    with pytest.raises(UsageError, match="not a valid name") as caught:
        build_index(SCHEMA, None, [PLAIN[0]._replace(name=name)])
    hint = "use letters, digits, '.', '_' and '-', with '/' between components, and a number of five digits"
    assert (caught.value.found, caught.value.hint) == (repr(name), hint)


# --- any bytes, many shards


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_raise_format_error(data: bytes) -> None:
    with contextlib.suppress(FormatError):
        parse_index(data)


KEYS = ["columns", "compression", "rows_offset", "row_size", "samples", "shards", "fingerprint", "metadata"]
SHARD_KEYS = ["files", "samples", "row_key", "size", "xxh3_128", "raw_size", "raw_xxh3_128"]
anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@given(st.sampled_from(KEYS), st.sampled_from([None, *SHARD_KEYS]), anything, st.booleans())
def test_any_value_of_a_key_is_read_or_raises_format_error(key: str, inner: str | None, value: Any, zstd: bool) -> None:
    index = reference.index(COLUMNS, STORED, RAW) if zstd else reference.index(COLUMNS, RAW)
    if inner:
        index["shards"][inner] = value
    else:
        index[key] = value
    text = json.dumps(index, separators=(",", ":"), ensure_ascii=True).removesuffix("}")
    with contextlib.suppress(FormatError):
        parse_index(reference.seal_index(text))


def test_a_hundred_thousand_shards_parse_fast_in_little_memory() -> None:
    count = 100_000
    digits = np.random.default_rng(0).bytes(32 * count).hex()
    many = [
        ShardEntry(
            name=f"shard.{k:05d}.mdsx.zst",
            samples=2,
            row_key=k * 2**40,
            size=200,
            hash=digits[64 * k : 64 * k + 32],
            raw_size=300 + k,
            raw_hash=digits[64 * k + 32 : 64 * k + 64],
        )
        for k in range(count)
    ]
    data = build_index(SCHEMA, "zstd", many)
    began = time.process_time()
    index = parse_index(data)
    taken = time.process_time() - began
    assert index.shard_entry(count - 1) == many[-1]
    assert taken < 3  # 0.08 s on an idle machine
    del index
    tracemalloc.start()
    index = parse_index(data)
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert index.samples == 2 * count
    assert kept < 100 * count


def test_all_shards_of_a_large_index_count() -> None:
    """They are hashed and added up in chunks of 2^16."""
    data = most_shards(70_000)
    index, stored = parse_index(data), json.loads(data)
    assert index.fingerprint == reference.fingerprint(stored)
    shards = zip(stored["shards"]["samples"], stored["shards"]["size"], strict=True)
    heaps = sum(size - by_the_book.up(SCHEMA.rows_offset + count * SCHEMA.row_size, 64) for count, size in shards)
    assert index.mean_length(1) == Fraction(heaps, stored["samples"])


@pytest.mark.parametrize(("compression", "key"), [(None, "size"), ("zstd", "size"), ("zstd", "raw_size")])
def test_a_wrong_size_among_many_shards_is_named(compression: str | None, key: str) -> None:
    index = json.loads(most_shards(70_000))
    shards = index["shards"]
    if compression:
        index["compression"] = compression
        shards |= {"raw_size": list(shards["size"]), "raw_xxh3_128": shards["xxh3_128"]}
    shards[key][66_000] = 1
    with pytest.raises(CorruptError) as caught:
        parse_index(reference.seal_index(index))
    assert caught.value.place == "raw size of shard 66000"


@pytest.mark.parametrize("more", [-1, 1, 64])
def test_a_shard_without_variable_columns_has_the_size_of_its_rows(more: int) -> None:
    columns = {"id": "uint16"}
    raw = by_the_book.shard(columns, [{"id": b"\1\0"}] * 2)
    (entry,) = entries([raw], [raw], ".mdsx")
    schema = Schema.from_columns(columns)
    parse_index(build_index(schema, None, [entry]))
    wrong = json.loads(build_index(schema, None, [entry]))
    wrong["shards"]["size"] = [len(raw) + more]
    with pytest.raises(CorruptError, match="the size cannot hold the samples"):
        parse_index(reference.seal_index(wrong))


_OPEN = r"""
import re, sys, time
from pathlib import Path
import mdsx
from mdsx.datasets import excerpt_of
began = time.perf_counter()
data = mdsx.Dataset(sys.argv[1])
order = mdsx.Order(excerpt_of(data).shards.index.counts, seed=1)
order.locate([0, len(data) - 1])
seconds = time.perf_counter() - began
most = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())  # this process's, not its parent's
print(seconds, 1024 * int(most[1]))
"""


@pytest.mark.slow
def test_the_most_shards_open_within_1_gb(tmp_path: Path) -> None:
    """In a process of its own, with all its imports. It takes seconds on an idle machine: see tools/bench."""
    (tmp_path / "index.json").write_bytes(most_shards())
    command = [sys.executable, "-c", _OPEN, str(tmp_path)]
    seconds, memory = map(float, subprocess.run(command, capture_output=True, check=True).stdout.split())
    assert memory < 1e9
    assert seconds < 60


def most_shards(count: int = MAX_SHARDS) -> bytes:
    """Return an index of `count` uncompressed shards, which do not exist."""
    counts, sizes = np.arange(count) % 1000 + 1000, np.arange(count) % 1000 + 2**28
    hashes = (np.arange(16 * count, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15) >> np.uint64(56)).astype(np.uint8)
    shards = {
        "files": [["shard.", ".mdsx", 0, count]],
        "samples": counts.tolist(),
        "row_key": hashes[: 8 * count].tobytes().hex(),
        "size": sizes.tolist(),
        "xxh3_128": hashes.tobytes().hex(),
    }
    index: dict[str, Any] = {
        "format": "mdsx",
        "version": 1,
        "columns": json.loads(SCHEMA.json),
        "rows_offset": SCHEMA.rows_offset,
        "row_size": SCHEMA.row_size,
        "samples": int(counts.sum()),
        "shards": shards,
        "fingerprint": fingerprint_of(SCHEMA, counts, sizes, hashes.reshape(-1, 16)),
        "metadata": {},
    }
    return reference.seal_index(index)


def test_more_shards_than_the_limit_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    data = build_index(SCHEMA, None, PLAIN)
    monkeypatch.setattr("mdsx.format.index_parser.MAX_SHARDS", 2)
    assert parse_index(data).samples == 4
    monkeypatch.setattr("mdsx.format.index_parser.MAX_SHARDS", 1)
    with pytest.raises(CorruptError, match="too many shards"):
        parse_index(data)
    with pytest.raises(UsageError, match=r'found 4194305.*shard_size="1024MiB" or more'):
        check_shard_count(MAX_SHARDS + 1, 2**50 + 2**28)
    check_shard_count(MAX_SHARDS, 2**50)
    monkeypatch.setattr("mdsx.format.index_writer.MAX_SHARDS", 1)
    with pytest.raises(UsageError, match=r'found 2.*shard_size="1MiB" or more'):
        build_index(SCHEMA, None, PLAIN)


def test_a_fitting_shard_size_makes_at_most_half_the_allowed_shards() -> None:
    half = MAX_SHARDS // 2 * 2**20
    sizes = [fitting_shard_size(size) for size in (0, half, half + 1, 2 * half, 2 * half + 1)]
    assert sizes == ['"1MiB"', '"1MiB"', '"2MiB"', '"2MiB"', '"4MiB"']


FIRST_THREADS = """
import sys
from pathlib import Path
from threading import Barrier, Thread

from mdsx.format import parse_index

data, ready, done = Path(sys.argv[1]).read_bytes(), Barrier(8), []
sys.setswitchinterval(1e-6)


def parse():
    ready.wait()
    done.append(parse_index(data).samples)


threads = [Thread(target=parse) for _ in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert len(done) == 8
"""


def test_many_threads_may_parse_the_first_index(tmp_path: Path) -> None:
    """msgspec crashes if several threads first use a type at once. A writer's resume does that."""
    (tmp_path / "index.json").write_bytes(build_index(SCHEMA, None, PLAIN))
    for _ in range(4):
        command = [sys.executable, "-c", FIRST_THREADS, str(tmp_path / "index.json")]
        assert subprocess.run(command, timeout=60, check=False).returncode == 0
