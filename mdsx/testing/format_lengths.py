"""Lengths of samples, read from the shards and from a file, equal the lengths of their values."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import mdsx
from mdsx.datasets import excerpt_of
from mdsx.format import ReadsWhole
from mdsx.shards import Shards, View, index_keys, lengths_of
from mdsx.testing.far_disk import FarDisk, Request
from mdsx.testing.format_case import FormatCase
from mdsx.testing.subject import COUNT, FIRST, SHARDS, Subject, sample


def lengths(data: mdsx.Dataset, column: str) -> list[int]:
    view = View([excerpt_of(data)])
    shards = np.repeat(np.arange(len(view.counts)), view.counts)
    samples = np.concatenate([np.arange(count) for count in view.counts])
    found: list[int] = lengths_of(view, column).of(shards, samples).tolist()
    return found


def expected(column: str) -> list[int]:
    samples = [sample(FIRST + number) for number in range(COUNT)]
    if column == "id":
        return [int(each["id"]) for each in samples]
    return [len(each[column] or "") for each in samples]


def requests() -> list[Request]:
    found = [request for request in FarDisk.requests if request.key not in index_keys()]
    FarDisk.requests.clear()
    return found


class LengthsOfSamples(FormatCase):
    """Lengths equal those of the values."""

    @pytest.mark.parametrize("column", ["text", "id", "vector", "maybe"])
    def test_lengths_are_those_of_the_values(self, subject: Subject, url: str, column: str) -> None:
        if column in subject.columns:
            assert lengths(mdsx.Dataset(url), column) == expected(column)

    @pytest.mark.parametrize("column", ["text", "id", "vector", "maybe"])
    def test_the_mean_follows_from_the_index_alone(self, subject: Subject, url: str, folder: Path, column: str) -> None:
        if column in subject.columns:
            mean = lengths_of(View([excerpt_of(mdsx.Dataset(url))]), column).mean
            assert mean is not None or column == "id" or not subject.ours
            mdsx.write_lengths(folder, column)
            assert lengths_of(View([excerpt_of(mdsx.Dataset(url))]), column).mean == mean

    def test_a_shard_in_the_cache_is_not_read_again(self, far: str) -> None:
        data = mdsx.Dataset(far, columns=["text"])
        for shard in range(SHARDS):
            assert excerpt_of(data).shards.fetch(shard) is None
        requests()
        assert lengths(data, "text") == expected("text")
        assert {request.key for request in requests()} == {"_lengths/text.u32"}  # looked for

    def test_no_more_is_read_than_needed(self, subject: Subject, folder: Path, far: str) -> None:
        assert lengths(mdsx.Dataset(far), "text") == expected("text")
        asked = requests()[1:]
        size = sum((each.stop or (folder / each.key).stat().st_size) - each.start for each in asked)
        index = Shards(far).index
        if subject.ours:
            assert size == int(index.counts.sum()) * index.schema.row_size
        if subject.reads is ReadsWhole:
            assert sorted(request.key for request in asked) == sorted(index.name(shard) for shard in range(SHARDS))

    def test_a_file_of_lengths_serves_each_format(self, folder: Path, far: str) -> None:
        found = mdsx.write_lengths(folder, "text")
        assert (found.samples, found.sum) == (COUNT, sum(expected("text")))
        assert lengths(mdsx.Dataset(far, columns={"other name": "text"}), "other name") == expected("text")
        key = "_lengths/text.u32"
        trailer, all_of_them = requests()
        assert (trailer.key, trailer.start) == (key, 4 * COUNT)
        assert all_of_them == Request(key, 0, 4 * COUNT)
        assert lengths(mdsx.Dataset(folder), "text") == expected("text")
        assert not mdsx.verify(folder).damages

    def test_a_column_without_lengths_is_refused(self, subject: Subject, folder: Path) -> None:
        with pytest.raises(mdsx.UsageError, match=r"no such column.*text"):
            lengths(mdsx.Dataset(folder), "absent")
        with pytest.raises(mdsx.UsageError, match="text"):
            mdsx.write_lengths(folder, "absent")

    def test_a_truncated_shard_is_found(self, folder: Path) -> None:
        index = Shards(folder).index
        path = folder / index.name(2)
        path.write_bytes(path.read_bytes()[:-1])
        with pytest.raises(mdsx.MdsxError, match=path.name):
            lengths(mdsx.Dataset(folder), "text")
