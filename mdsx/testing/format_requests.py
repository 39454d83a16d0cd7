"""Each way of reading requests no more from storage than its bytes need."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import mdsx
from mdsx.datasets import excerpt_of
from mdsx.format import ReadsExtents, ReadsParts, filenames
from mdsx.shards import Shards, index_keys
from mdsx.testing.far_disk import FarDisk, Request
from mdsx.testing.format_case import FormatCase
from mdsx.testing.subject import COUNT, FIRST, SHARDS, Subject, all_of


def is_side(key: str) -> bool:
    return key.startswith((filenames.POINTERS_FOLDER, filenames.TABLES_FOLDER))


def requests_of_shards() -> list[Request]:
    """The requests so far, without those for the index and for side objects."""
    found = [request for request in FarDisk.requests if request.key not in index_keys() and not is_side(request.key)]
    FarDisk.requests.clear()
    return found


def size_of(requests: list[Request], folder: Path) -> int:
    return sum((each.stop or (folder / each.key).stat().st_size) - each.start for each in requests)


class Requests(FormatCase):
    """No more is requested from storage than needed."""

    def test_opening_reads_only_the_index(self, far: str) -> None:
        assert len(mdsx.Dataset(far)) == COUNT
        assert not requests_of_shards()

    def test_requests_stay_within_their_object(self, folder: Path, far: str) -> None:
        data = mdsx.Dataset(far)
        assert data[COUNT - 1]["id"] == FIRST + COUNT - 1
        assert len(data[:]) == COUNT
        for request in requests_of_shards():
            size = (folder / request.key).stat().st_size
            assert 0 <= request.start < (request.stop or size) <= size

    def test_a_single_sample_needs_a_sample_a_group_or_a_shard(self, subject: Subject, folder: Path, far: str) -> None:
        shards = Shards(far)
        found = shards.select_stored(3, np.array([7]))
        assert found.samples.tolist() == [7]
        requests = requests_of_shards()
        assert {request.key for request in requests} == {shards.index.name(3)}
        assert shards.is_open(3) == (not subject.by_sample)
        assert shards.requires_full_download(3) == (not subject.by_sample)
        size, most = size_of(requests, folder), int(shards.index.sizes[3])
        if subject.by_sample:
            assert len(requests) <= 3
            assert size < most or subject.reads is ReadsExtents  # the ends of a small file are all of it
        elif subject.reads is ReadsParts:
            assert len(requests) <= 3
            assert most <= size < (folder / shards.index.name(3)).stat().st_size
        else:
            assert [tuple(request) for request in requests] == [(shards.index.name(3), 0, most)]

    def test_the_cache_fetches_each_shard_once(self, subject: Subject, folder: Path, far: str) -> None:
        for epoch in range(2):
            data = mdsx.Dataset(far)
            assert len(all_of(data[:])) == COUNT
            requests = requests_of_shards()
            assert bool(requests) == (epoch == 0)
            if subject.reads is not ReadsParts and requests:
                assert len(requests) == len({request.key for request in requests}) == SHARDS
        sizes = [path.stat().st_size for path in (folder.parent / "cache").rglob("*.mdsx")]
        assert len(sizes) == SHARDS
        assert sorted(sizes) == sorted(excerpt_of(data).shards.index.raw_sizes.tolist()) or subject.reads is ReadsParts

    def test_an_epoch_reads_no_shard_twice(self, subject: Subject, folder: Path, far: str) -> None:
        loader = mdsx.Loader(far, columns=["id"], batch_size=6)
        assert sum(len(batch["id"]) for batch in loader) == COUNT
        size = size_of(requests_of_shards(), folder)
        stored = sum(path.stat().st_size for path in folder.rglob("*") if path.name not in index_keys())
        assert size <= 2 * stored  # the first samples are read by range, before their shards are there
        for batch in loader:
            assert len(batch["id"]) == 6
        assert not requests_of_shards()

    def test_a_projection_fetches_only_its_columns(self, subject: Subject, folder: Path, far: str) -> None:
        assert len(all_of(mdsx.Dataset(far)[:])) == COUNT
        whole = size_of(requests_of_shards(), folder)
        assert len(all_of(mdsx.Dataset(far, columns=["id"], cache=folder.parent / "other cache")[:])) == COUNT
        chosen = size_of(requests_of_shards(), folder)
        assert chosen < whole if subject.projects else chosen == whole
