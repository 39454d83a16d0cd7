"""What an index, the layout of its samples and its decoders promise to the layers above."""

from __future__ import annotations

import copy
import json
import pickle
import random
import tracemalloc
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mdsx
from mdsx.format import ProjectsColumns, ReadsParts, ReadsSamples, StoredIndex, object_sizes
from mdsx.shards import Shards, read_index
from mdsx.shards.gather import gather
from mdsx.storage.base import check_key
from mdsx.testing.far_disk import SCHEME, FarDisk
from mdsx.testing.format_case import FormatCase, Often
from mdsx.testing.subject import COUNT, FIRST, PER_SHARD, SHARDS, Subject, all_of, sample


def index_of(folder: Path) -> StoredIndex:
    return read_index(FarDisk(folder))


# --- hostile indexes

HOSTILE: list[Any] = [
    -1,
    0,
    1,
    2**31,
    2**40,
    2**62,
    2**63,
    2**64,
    1e300,
    0.5,
    None,
    True,
    "",
    "..",
    "../index.json",
    "/etc/passwd",
    "a\0b",
    "x" * 5000,
    "float64[99999999,99999999]",
    "ndarray:float64:99999999,99999999",
    [],
    {},
    [[[[[]]]]],
]


def changed(value: Any, path: tuple[Any, ...], change: Callable[[Any], Any]) -> Any:
    """Return a copy of JSON with a change at `path`."""
    if not path:
        return change(value)
    found = copy.copy(value)
    found[path[0]] = changed(value[path[0]], path[1:], change)
    return found


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield from places(item, (*path, key))


def hostile_indexes(data: bytes, random: random.Random, count: int) -> Iterator[bytes]:
    """Yield indexes with wrong, missing or duplicate values, and with damaged bytes."""
    try:
        index = json.loads(data)
    except ValueError:  # an index of another form: only bytes are changed
        index = None
    for path in random.choices([*places(index)], k=count):
        kind = random.choice(["value", "value", "value", "double", "cut", "byte"])
        if kind == "byte" or index is None:
            text = bytearray(data)
            text[random.randrange(len(data))] = random.randrange(256)
            yield bytes(text)
            continue
        changes: dict[str, Callable[[Any], Any]] = {
            "value": partial(lambda wrong, _: wrong, random.choice(HOSTILE)),
            "double": lambda old: old * 2 if isinstance(old, list | str | int) else old,
            "cut": lambda old: old[:-1] if isinstance(old, list | str) else {},
        }
        yield json.dumps(changed(index, path, changes[kind]), separators=(",", ":")).encode()


class Protocols(FormatCase):
    """What an index and its parts promise."""

    def test_an_index_says_what_its_protocol_asks(self, subject: Subject, folder: Path) -> None:
        index = index_of(folder)
        assert index.format == subject.format.name
        assert index.checks
        assert index.samples == COUNT
        assert len(index.counts) == SHARDS
        for numbers in (index.counts, index.sizes, index.raw_sizes):
            assert numbers.dtype == np.int64
            assert numbers.shape == (SHARDS,)
            assert numbers.min() > 0
        assert index.raw_hashes.dtype == np.uint8
        assert index.raw_hashes.shape == (SHARDS, 16)
        assert len(np.unique(index.raw_hashes, axis=0)) == SHARDS
        assert len(bytes.fromhex(index.fingerprint)) == 16
        assert index.fingerprint == index.fingerprint.lower()
        assert json.loads(json.dumps(index.metadata)) == index.metadata
        assert isinstance(index, subject.reads)
        assert isinstance(index, ReadsParts) == (subject.reads is ReadsParts)
        for shard in range(SHARDS):
            path = folder / check_key(index.name(shard))
            assert object_sizes(index, [shard]) == {index.name(shard): path.stat().st_size}
            assert path.stat().st_size == index.sizes[shard] or subject.reads is ReadsParts
            ranges = isinstance(index, ReadsSamples) and index.has_ranges(shard)
            assert ranges == subject.by_sample

    def test_equal_bytes_make_equal_indexes(self, subject: Subject, folder: Path) -> None:
        first, second = index_of(folder), index_of(folder)
        assert first.fingerprint == second.fingerprint
        assert (first.raw_hashes == second.raw_hashes).all()

    def test_other_samples_have_other_names_in_the_cache(self, folder: Path, other: Path) -> None:
        ours, theirs = index_of(folder), index_of(other)
        hashes = {bytes(found) for index in (ours, theirs) for found in index.raw_hashes}
        assert ours.fingerprint != theirs.fingerprint or len(hashes) == 2 * SHARDS

    def test_a_projection_keeps_fingerprint_and_samples(self, subject: Subject, folder: Path) -> None:
        index = index_of(folder)
        columns = [column.name for column in index.schema.columns]
        numbers = [columns.index("text"), columns.index("id")]
        assert isinstance(index, ProjectsColumns) == subject.projects
        if isinstance(index, ProjectsColumns):
            found = index.project(numbers)
            assert found.fingerprint == index.fingerprint
            assert (found.counts == index.counts).all()
            assert [column.name for column in found.schema.columns] == ["text", "id"]
            assert not (found.raw_hashes == index.raw_hashes).all(axis=1).any()

    def test_index_layout_and_decoder_are_pickled(self, subject: Subject, folder: Path) -> None:
        shards = Shards(f"{SCHEME}{folder}")
        assert shards.fetch(2) is None
        numbers = {column.name: number for number, column in enumerate(shards.schema.columns)}
        decoder = shards.index.decoder({name: numbers[name] for name in subject.columns})
        assert shards.decode(2, 3, decoder) is not None  # whatever it keeps is not pickled, or can be
        layout = shards.select(2, np.arange(2)).layout
        for thing in (shards.index, decoder, layout):
            assert type(pickle.loads(pickle.dumps(thing))) is type(thing)
        again: mdsx.Dataset = pickle.loads(pickle.dumps(mdsx.Dataset(folder)))
        assert all_of(again) == [subject.expected(FIRST + number) for number in range(COUNT)]

    def test_copies_need_no_shard(self, folder: Path) -> None:
        shards = Shards(f"{SCHEME}{folder}")
        assert shards.fetch(1) is None
        copied = shards.select(1, np.array([3, 1])).copied()
        shards.close(1)
        assert len(copied.rows) == 2
        numbers = tuple(range(len(copied.schema.columns)))
        (columns,) = gather(copied.schema, [(copied, numbers)], np.array([1, 0]), [2])
        first = FIRST + PER_SHARD
        assert columns["text"] == [sample(first + 1)["text"], sample(first + 3)["text"]]
        assert columns["id"].tolist() == [first + 1, first + 3]

    @pytest.mark.filterwarnings("ignore:.*the cache may hold")
    def test_a_hostile_index_is_an_error_or_harmless(
        self, subject: Subject, folder: Path, often: Often, request: pytest.FixtureRequest
    ) -> None:
        """Any index gives only errors of mdsx, or names below the folder, and takes little memory."""
        key = subject.format.index_key
        undamaged = (folder / key).read_bytes()
        tracemalloc.start()
        request.addfinalizer(tracemalloc.stop)
        parsed = 0
        for data in hostile_indexes(undamaged, random.Random(7), often(40, 1000)):
            tracemalloc.reset_peak()
            before = tracemalloc.get_traced_memory()[0]
            try:
                index = subject.format.parse_index(data, file="x")
            except mdsx.MdsxError:
                continue
            finally:
                peak = tracemalloc.get_traced_memory()[1] - before
                assert peak < 2**20 + 200 * len(data)
            parsed += 1
            assert index.samples == sum(index.counts.tolist())
            for shard in range(len(index.counts)):
                check_key(index.name(shard))
            (folder / key).write_bytes(data)
            try:
                found = all_of(mdsx.Dataset(f"{SCHEME}{folder}", cache=str(folder / "c"))[:20])
            except mdsx.MdsxError:
                continue
            if data == undamaged:
                assert found == [subject.expected(FIRST + number) for number in range(20)]
        assert parsed or b'"checksum":' in undamaged  # with a checksum, every change is an error
