"""What the formats of mdsx do together, with a server, and each in its own way."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import mdsx
from mdsx.format import ReadsExtents, ReadsParts, ReadsWhole, object_sizes
from mdsx.shards import read_index
from mdsx.storage import open_storage
from mdsx.testing.far_disk import SCHEME, FarDisk
from mdsx.testing.format_case import Written
from mdsx.testing.format_damage import WRONG, change, flip, shard_file
from mdsx.testing.format_lengths import lengths
from mdsx.testing.subject import COMMON, COUNT, FIRST, PER_SHARD, Subject, all_of, sample
from mdsx.torch import StreamingDataLoader, StreamingDataset
from tests.foreign.mds import plain
from tests.shards.formats.subjects import SOME, SUBJECTS


@pytest.mark.filterwarnings("ignore:the cache may hold")
def test_all_formats_stream_as_one_through_a_small_cache(written: Written, tmp_path: Path) -> None:
    folders = [written(subject, FIRST) for subject in SUBJECTS]
    cache = mdsx.Cache(tmp_path / "small", limit="100KB")
    mixture = mdsx.Mixture([mdsx.Dataset(f"{SCHEME}{each}", columns=[*COMMON], cache=cache) for each in folders])
    loader = StreamingDataLoader(StreamingDataset(mixture), 20)
    batches = list(loader)
    ids = np.concatenate([batch["id"] for batch in batches])
    times = len(SUBJECTS)
    assert np.bincount(ids - FIRST).tolist() == [times] * COUNT
    for batch in batches:
        numbers = batch["id"].tolist()
        assert batch["text"] == [sample(number)["text"] for number in numbers]
        assert batch["extra"] == [sample(number)["extra"] for number in numbers]
        assert batch["vector"].tolist() == [sample(number)["vector"] for number in numbers]


@pytest.mark.parametrize("subject", SOME, indirect=True, ids=str)
def test_a_dataset_on_s3_is_read(subject: Subject, folder: Path, s3_url: str) -> None:
    storage = open_storage(s3_url)
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            storage.put(str(path.relative_to(folder)), path.read_bytes())
    data = mdsx.Dataset(s3_url)
    assert all_of(data) == [subject.expected(FIRST + number) for number in range(COUNT)]


def test_a_folder_whose_name_is_not_utf8_is_read(subject: Subject, folder: Path, tmp_path: Path) -> None:
    found = folder.rename(tmp_path / "\udcff")
    for url in (str(found), f"{SCHEME}{found}"):
        assert all_of(mdsx.Dataset(url)) == [subject.expected(FIRST + number) for number in range(COUNT)]


def test_a_run_skips_damaged_samples_or_groups_but_no_object(subject: Subject, folder: Path, far: str) -> None:
    """An object with wrong bytes may be another one."""
    index = read_index(FarDisk(folder))
    name, end = index.name(WRONG), sum(index.sizes[: WRONG + 1].tolist())
    in_group = end / object_sizes(index, [WRONG])[name] if subject.name == "packed" else 1.0
    change(shard_file(folder), flip(0.95 * in_group))
    loader = StreamingDataLoader(StreamingDataset(far, columns=["id", "text"]), 6, on_error="skip")
    whole = (ReadsWhole, ReadsExtents)  # the ends of a small file are all of it
    if subject.reads in whole or subject.name == "parquet":  # its footer was damaged
        with pytest.raises((mdsx.CorruptError, mdsx.ChangedError), match=name):
            list(loader)
        return
    found = {int(number): text for batch in loader for number, text in zip(batch["id"], batch["text"], strict=True)}
    lost = set(range(FIRST, FIRST + COUNT)) - set(found)
    expected = PER_SHARD if subject.reads is ReadsParts else 1 if subject.proves else 0
    assert len(lost) == loader.stats().skipped == expected
    assert all(text == sample(number)["text"] for number, text in found.items()) or not subject.proves


@pytest.mark.parametrize("hashes", [[], ["sha1"]])
def test_datasets_with_equal_indexes_do_not_share_lengths(tmp_path: Path, hashes: list[str]) -> None:
    for name, sizes in (("one", [1, 3, 2]), ("other", [3, 1, 2])):
        plain.write_dataset(tmp_path / name, {"x": "str"}, [[{"x": "x" * size} for size in sizes]], hashes)
        assert lengths(mdsx.Dataset(f"{SCHEME}{tmp_path / name}"), "x") == sizes
