"""The bytes of shards, and the cut between two shards."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mdsx.format.check import check_shard
from mdsx.format.encode import Encoder, ShardBuilder
from mdsx.format.encoded import Encoded
from mdsx.format.schema import Schema
from mdsx.format.shard import ShardView
from tests.forks import forked
from tests.format import by_the_book

Samples = Sequence[dict[str, Any]]


def encode(columns: dict[str, str], samples: Samples) -> Encoded:
    return Encoder(Schema.from_columns(columns)).batch({name: [sample[name] for sample in samples] for name in columns})


def shards(columns: dict[str, str], batches: Sequence[Samples], shard_size: int) -> Iterator[bytes]:
    """Return the shards that a writer makes of these batches."""
    builder = ShardBuilder(Schema.from_columns(columns), shard_size)
    for batch in batches:
        encoded, taken = encode(columns, batch), 0
        while (taken := builder.add(encoded, taken)) < encoded.samples:
            yield bytes(builder.finish())
    if builder.samples:
        yield bytes(builder.finish())


def one_shard(columns: dict[str, str], samples: Samples) -> bytes:
    (shard,) = shards(columns, [samples], 2**40)
    return shard


def by_book(columns: dict[str, str], samples: Samples) -> bytes:
    """Return the same shard from the values' bytes, without the builder."""
    encoder = Encoder(Schema.from_columns(columns))
    stored = []
    for sample in samples:
        values = dict(zip(columns, encoder.sample(sample)[0], strict=True))
        nulls = {name: None for name, value in sample.items() if value is None and columns[name].endswith("?")}
        stored.append(values | nulls)
    return by_the_book.shard(columns, stored)


def test_a_small_shard_byte_by_byte() -> None:
    shard = one_shard({"id": "uint16", "text": "str?"}, [{"id": 7, "text": "héllo"}, {"id": 8, "text": None}])
    assert shard == bytes.fromhex(
        "894d4453580d0a1a 0100 0000 40000000 0200000000000000 23abb5790b607e4a"  # magic, 1.0, header, samples, key
        "18000000 3d000000 c000000000000000 c600000000000000 0c5df71622bcd4da"  # row, schema, heap, file, checksum
        "5b7b226e616d65223a226964222c2274797065223a2275696e743136227d2c7b226e616d65223a2274657874222c2274797065223a"
        "227374723f227d5d 000000"  # the schema, padded to 128
        "03eada2a953dc882 0000000000000000 06000000 0700 0000"  # checksum, start, length, id, padding
        "d57be009d4e4905d 0600000000000000 ffffffff 0800 0000"
        "00000000000000000000000000000000"  # to 192
        "68c3a96c6c6f"
    )


@pytest.mark.parametrize("count", [1, 2, 1000, 5000])
@pytest.mark.parametrize(
    "columns",
    [
        {"a": "int64"},
        {"a": "bool"},  # rows with padding at the end
        {"a": "uint8", "b": "float64", "c": "uint8[3]", "d": "uint32"},  # and in between
        {"a": "uint16[0]"},  # rows of a checksum alone
        {"a": "str"},
        {"a": "str", "b": "bytes?", "c": "int8", "d": "uint16[*]", "e": "uint8[2]?"},
        {"a": "uint16[300]"},  # rows large enough for another way of hashing
        {"a": "uint16[300]", "b": "str"},
    ],
)
def test_shards_are_as_the_specification_says(columns: dict[str, str], count: int) -> None:
    rng = np.random.default_rng(count)
    samples = [{name: value_of(kind, rng) for name, kind in columns.items()} for _ in range(count)]
    assert one_shard(columns, samples) == by_book(columns, samples)


def value_of(kind: str, rng: np.random.Generator) -> object:
    if kind.endswith("?") and rng.random() < 0.3:
        return None
    base, _, dims = kind.removesuffix("?").removesuffix("]").partition("[")
    if base in ("str", "bytes"):
        text = "é" * int(rng.integers(0, 5))
        return text if base == "str" else text.encode()
    shape = [int(rng.integers(0, 4)) if dim == "*" else int(dim) for dim in dims.split(",") if dim]
    return rng.integers(0, 2, shape).tolist()


@pytest.mark.parametrize("size", [0, 1, 500, 1500, 200_000])
def test_row_checksums_cover_heap_bytes_of_any_size(size: int) -> None:
    columns = {"a": "bytes", "b": "int64", "c": "bytes"}
    samples = [{"a": bytes([n]) * size, "b": n, "c": b"c" * n} for n in range(5)]
    assert one_shard(columns, samples) == by_book(columns, samples)
    alone = [{"a": sample["a"]} for sample in samples]
    assert one_shard({"a": "bytes"}, alone) == by_book({"a": "bytes"}, alone)


TEXT = {"text": "str", "id": "uint8"}


@given(
    lengths=st.lists(st.integers(0, 300), min_size=1, max_size=60),
    cuts=st.lists(st.integers(0, 60), max_size=6),
    shard_size=st.integers(1, 1500),
)
def test_shards_are_equal_for_any_way_of_writing(lengths: list[int], cuts: list[int], shard_size: int) -> None:
    samples = [{"text": "x" * length, "id": number} for number, length in enumerate(lengths)]
    whole = list(shards(TEXT, [samples], shard_size))
    bounds = [0, *sorted(cuts), len(samples)]
    batches = [samples[start:stop] for start, stop in pairwise(bounds)]
    assert list(shards(TEXT, batches, shard_size)) == whole
    assert list(shards(TEXT, [[sample] for sample in samples], shard_size)) == whole


@given(lengths=st.lists(st.integers(0, 300), min_size=1, max_size=60), shard_size=st.integers(1, 1500))
def test_a_shard_ends_before_it_would_exceed_its_size(lengths: list[int], shard_size: int) -> None:
    samples = [{"text": "x" * length, "id": number} for number, length in enumerate(lengths)]
    taken = 0
    for shard in shards(TEXT, [samples], shard_size):
        count = ShardView.parse(shard).samples
        own = samples[taken : taken + count]
        assert shard == by_book(TEXT, own)
        assert len(shard) <= shard_size or count == 1
        if taken + count < len(samples):
            assert len(by_book(TEXT, samples[taken : taken + count + 1])) > shard_size
        taken += count
    assert taken == len(samples)


def test_a_shard_may_have_exactly_its_size() -> None:
    columns = {"a": "uint8[56]"}  # rows of 64 bytes from 128 on
    samples = [{"a": [n] * 56} for n in range(5)]
    assert [len(shard) for shard in shards(columns, [samples], 128 + 4 * 64)] == [384, 192]
    assert [len(shard) for shard in shards(columns, [samples], 128 + 4 * 64 - 1)] == [320, 256]


def test_a_sample_larger_than_a_shard_gets_its_own() -> None:
    samples = [{"text": "x" * length, "id": 0} for length in (10, 3000, 10, 10, 5000)]
    counts = [ShardView.parse(shard).samples for shard in shards(TEXT, [samples], 1000)]
    assert counts == [1, 1, 2, 1]


def test_every_built_shard_passes_the_full_check() -> None:
    rng = np.random.default_rng(0)
    columns = {"a": "str", "b": "bytes?", "c": "int8", "d": "float32[*,2]", "e": "bool[3]", "f": "bool", "g": "float64"}
    samples = [{name: value_of(kind, rng) for name, kind in columns.items()} for _ in range(3000)]
    built = list(shards(columns, [samples], 40_000))
    assert len(built) > 3
    for shard in built:
        assert check_shard(shard, schema=Schema.from_columns(columns)) == []


@pytest.mark.parametrize("columns", [TEXT, {"id": "uint8"}])
def test_a_finished_shard_can_be_continued(columns: dict[str, str]) -> None:
    samples = [{name: {"text": "x" * n, "id": n}[name] for name in columns} for n in range(100)]
    builder = ShardBuilder(Schema.from_columns(columns), 2**20)
    builder.restore(ShardView.parse(one_shard(columns, samples[:60])))
    assert builder.samples == 60
    assert builder.add(encode(columns, samples[60:])) == 40
    assert bytes(builder.finish()) == one_shard(columns, samples)


def test_a_shard_larger_than_the_limit_can_be_continued() -> None:
    samples = [{"text": "x", "id": n} for n in range(100)]
    shard = one_shard(TEXT, samples)
    builder = ShardBuilder(Schema.from_columns(TEXT), 500)
    builder.restore(ShardView.parse(shard))
    assert builder.add(encode(TEXT, samples)) == 0
    assert builder.finish() == shard


def resident() -> int:
    """Return the resident memory of this process in bytes."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_a_builder_takes_only_the_memory_it_fills() -> None:
    def growth() -> int:
        encoded, before = encode(TEXT, [{"text": "x", "id": 1}]), resident()
        builder = ShardBuilder(Schema.from_columns(TEXT), 2**62)
        builder.add(encoded)
        return resident() - before

    assert forked(growth) < 2**22


def test_a_shard_larger_than_the_first_buffer_is_whole() -> None:
    tokens = np.arange(70 * 2**18, dtype=np.uint32).reshape(70, 2**18)  # 70 MiB
    schema = Schema.from_columns({"tokens": "uint32[262144]"})
    builder = ShardBuilder(schema, 2**30)
    encoded = Encoder(schema).batch({"tokens": tokens})
    assert builder.add(encoded) == 70
    shard = ShardView.parse(builder.finish())
    np.testing.assert_array_equal(shard.rows["column0"], tokens)


@pytest.mark.parametrize("columns", [TEXT, {"id": "uint8"}])
def test_memory_of_an_earlier_shard_leaves_no_trace(columns: dict[str, str]) -> None:
    """Neither between the fields of a row, nor between rows and heap."""
    samples = [{name: {"text": "x" * n, "id": n}[name] for name in columns} for n in range(100)]
    builder = ShardBuilder(Schema.from_columns(columns), 2**20)
    builder.add(encode(columns, samples))
    earlier = builder.pieces()
    np.frombuffer(next(iter(earlier)), np.uint8)[:] = 0xFF
    builder.reuse(earlier)
    builder.pieces()  # the shard that was begun before
    builder.add(encode(columns, samples[:61]))
    assert builder.finish() == one_shard(columns, samples[:61])
