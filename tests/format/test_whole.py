"""A format of a package whose shards are read whole: JSON lines, here in memory."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import xxhash

from mdsx.errors import CorruptError, UnsupportedError
from mdsx.format import Schema, WholeIndex, WholeShard

COLUMNS = {"text": "str", "score": "float32", "tokens": "int16[*]"}
SAMPLES = [{"text": "x" * n, "score": n / 2, "tokens": [n] * n} for n in range(5)]


class Lines(WholeIndex):
    format = "lines"
    least = 2

    def samples_of(self, data: memoryview, *, file: str) -> Sequence[Mapping[str, object]]:
        return [json.loads(line) for line in bytes(data).splitlines()]


def data_of(samples: Iterable[object]) -> bytes:
    return b"".join(json.dumps(sample).encode() + b"\n" for sample in samples)


FIRST, SECOND = data_of(SAMPLES[:2]), data_of(SAMPLES[2:])


def shard_of(name: str, samples: int, data: bytes) -> WholeShard:
    return WholeShard(name, samples, len(data), xxhash.xxh3_128_hexdigest(data))


def index_of(*shards: WholeShard, columns: dict[str, str] = COLUMNS) -> Lines:
    schema = Schema.from_pairs(columns.items(), file="index")
    return Lines(schema, shards, "0" * 32, "index")


@pytest.fixture
def index() -> Lines:
    return index_of(shard_of("a/first", 2, FIRST), shard_of("b", 3, SECOND))


def decoded(index: Lines, shard: int, data: bytes, sample: int) -> dict[str, Any]:
    decoder = index.decoder({"n": 1, "words": 0, "ids": 2})
    return decoder.decode(index.open(shard, data, file="f"), sample, verify=True)


def test_an_index_says_what_its_shards_are(index: Lines) -> None:
    assert (index.samples, index.counts.tolist(), index.sizes.tolist()) == (5, [2, 3], [len(FIRST), len(SECOND)])
    assert index.counts.dtype == index.sizes.dtype == np.int64
    assert index.raw_sizes.tolist() == index.sizes.tolist()
    assert [bytes(row).hex() for row in index.raw_hashes] == [shard.hash for shard in index.shards]
    assert [index.name(0), index.name(1)] == ["a/first", "b"]


def test_samples_are_encoded_as_a_writer_would(index: Lines) -> None:
    for number, sample in enumerate(SAMPLES):
        shard, data = (0, FIRST) if number < 2 else (1, SECOND)
        found = decoded(index, shard, data, number - 2 * shard)
        assert {**found, "ids": found["ids"].tolist()} == {
            "n": sample["score"], "words": sample["text"], "ids": sample["tokens"],
        }  # fmt: skip
    selected = index.open(1, SECOND, file="f").select(np.array([2, 0, 2]), verify=True)
    assert selected.samples.tolist() == [2, 0, 2]
    assert selected.rows["column1"].tolist() == [2.0, 1.0, 2.0]
    assert bytes(selected.heap).startswith(b"xxxx")


def test_lengths_are_those_of_each_value(index: Lines) -> None:
    opened = index.open(1, SECOND, file="f")
    assert opened.lengths(0).tolist() == opened.lengths(2).tolist() == [2, 3, 4]


def test_any_buffer_is_opened_and_cannot_be_written(index: Lines) -> None:
    opened = index.open(1, memoryview(bytearray(SECOND)).cast("b"), file="f")
    assert (bytes(opened.buffer), opened.buffer.readonly, opened.samples) == (SECOND, True, 3)
    assert opened.buffer.format == "B"
    assert not opened.checks_samples
    assert not opened.checks_cheaply


# --- damage


def test_a_received_shard_is_hashed(index: Lines) -> None:
    receiver = index.receive(0, file="f")
    assert b"".join(bytes(part) for chunk in (FIRST[:7], FIRST[7:]) for part in receiver.feed(chunk)) == FIRST
    receiver.finish()
    receiver = index.receive(0, file="f")
    receiver.feed(FIRST[:-1])
    with pytest.raises(CorruptError, match=r"^f: XXH3-128: the shard's bytes do not match the index") as caught:
        receiver.finish()
    assert (caught.value.found, caught.value.expected) == (
        xxhash.xxh3_128_hexdigest(FIRST[:-1]), xxhash.xxh3_128_hexdigest(FIRST),
    )  # fmt: skip


def test_an_opened_shard_can_be_verified(index: Lines) -> None:
    index.verify(1, index.open(1, SECOND, file="f"), file="f")
    damaged = SECOND.replace(b"x", b"y")
    with pytest.raises(CorruptError, match=r"^f: XXH3-128"):
        index.verify(1, index.open(1, damaged, file="g"), file="f")


def test_a_shard_of_another_size_is_refused(index: Lines) -> None:
    with pytest.raises(CorruptError, match=r"^f: the shard has another size") as caught:
        index.open(0, FIRST + b"\n", file="f")
    assert (caught.value.found, caught.value.expected) == (len(FIRST) + 1, len(FIRST))


@pytest.mark.parametrize(
    ("samples", "says"),
    [
        ([SAMPLES[0]], r"^f: the shard has another number of samples \(found 1\)"),
        ([SAMPLES[0], {**SAMPLES[1], "score": "x"}], r"^f: a sample is damaged: .*score"),
        ([SAMPLES[0], {"text": "x"}], r"^f: a sample is damaged: .*score"),
    ],
)
def test_samples_that_a_writer_would_refuse_are_corrupt(samples: list[Any], says: str) -> None:
    data = data_of(samples)
    index = index_of(shard_of("a", 2, data))
    with pytest.raises(CorruptError, match=says):
        index.open(0, data, file="f").select(np.array([len(samples) - 1]), verify=True)
    (error,) = index.check(0, data, file="f")
    assert error.file == "f"


def test_a_shard_that_is_no_json_is_corrupt() -> None:
    for data in (b"{\n" + FIRST, b"[" * 100_000):
        index = index_of(shard_of("a", 2, data))
        with pytest.raises(CorruptError, match=r"^f: a sample is damaged"):
            index.open(0, data, file="f").select(np.array([0]), verify=True)


def test_a_check_names_what_is_wrong(index: Lines) -> None:
    assert index.check(1, SECOND, file="f") == []
    (error,) = index.check(1, SECOND[1:], file="f")
    assert "another size" in str(error)


@pytest.mark.parametrize(("name", "samples", "size"), [("../a", 1, 2), ("", 1, 2), ("a" * 99, 2, 3)])
def test_an_index_with_a_wrong_shard_is_refused(name: str, samples: int, size: int) -> None:
    shard = WholeShard(name, samples, size, "0" * 32)
    with pytest.raises(CorruptError, match=r"^index: a shard has a wrong name or size") as caught:
        index_of(shard_of("a", 1, b"{}"), shard)
    assert caught.value.found == name[:80]
    index_of(WholeShard("a", 2, 4, "0" * 32))


def test_a_column_of_an_unknown_type_is_unsupported(index: Lines) -> None:
    schema = Schema.from_pairs({"text": "str", "clip": "hologram" * 20}.items(), file="index")
    with pytest.raises(UnsupportedError, match=r"^index: clip: unknown column type") as caught:
        replace(index, schema=schema)
    assert caught.value.found == ("hologram" * 20)[:80]
