"""mdsx.Dataset: any sample by its number, from any place, never a wrong byte."""

from __future__ import annotations

import multiprocessing
import os
import pickle
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mdsx
import mdsx.torch
from mdsx.datasets import excerpt_of
from mdsx.format import Index, parse_index
from mdsx.storage import open_storage

COLUMNS = {
    "id": "int64",
    "ids": "uint16[16]",
    "text": "str",
    "half": "bfloat16[2]",
    "flag": "bool",
    "ragged": "float32[*,2]",
    "maybe": "int32?",
    "data": "json",
    "packed": "msgpack?",
    "raw": "bytes",
}
N = 500


def sample(number: int) -> dict[str, Any]:
    return {
        "id": number,
        "ids": np.arange(number, number + 16, dtype=np.uint16),
        "text": f"text {number} é",
        "half": [number % 256, -0.5],
        "flag": number % 2 == 0,
        "ragged": np.full((number % 4, 2), number, np.float32),
        "maybe": None if number % 3 else number,
        "data": {"n": number, "list": [None, 1.5]},
        "packed": None if number % 2 else {"b": b"\0", "n": number},
        "raw": bytes([number % 256]) * (number % 7),
    }


def write(url: str, **options: Any) -> None:
    with mdsx.Writer(url, COLUMNS, shard_size=8192, metadata={"made": "by hand"}, **options) as out:
        for number in range(N):
            out.write(sample(number))


@pytest.fixture(scope="module")
def local_url(tmp_path_factory: pytest.TempPathFactory) -> str:
    url = str(tmp_path_factory.mktemp("dataset") / "local")
    write(url)
    return url


def check(found: dict[str, Any], number: int) -> None:
    expected = sample(number)
    assert list(found) == list(COLUMNS)
    for name in ("id", "text", "flag", "maybe", "data", "packed", "raw"):
        assert found[name] == expected[name], name
    assert found["ids"].tolist() == expected["ids"].tolist()
    assert found["half"].tolist() == expected["half"]
    assert found["ragged"].tolist() == expected["ragged"].tolist()
    assert found["ids"].dtype == np.uint16


@pytest.fixture(params=["in place", "pread", "zstd", "s3", "s3 zstd"])
def dataset(request: pytest.FixtureRequest, tmp_path: Path, local_url: str) -> mdsx.Dataset:
    """The same samples from every place a dataset can be read from."""
    kind = request.param
    if kind in ("in place", "pread"):
        return mdsx.Dataset(local_url, mmap=kind == "in place")
    url = f"{request.getfixturevalue('s3_url')}/dataset" if "s3" in kind else str(tmp_path / "zstd")
    write(url, compression="zstd" if "zstd" in kind else None)
    return mdsx.Dataset(url, cache=mdsx.Cache(tmp_path / "cache", limit="1MB"))


def test_samples_by_number_slice_and_list(dataset: mdsx.Dataset) -> None:
    assert len(dataset) == N
    check(dataset[42], 42)
    check(dataset[-1], N - 1)
    check(dataset[np.int32(7)], 7)
    for found, number in zip(dataset[10:20:3], range(10, 20, 3), strict=True):
        check(found, number)
    for found, number in zip(dataset[[5, 3, 499, 3, -500]], [5, 3, 499, 3, 0], strict=True):
        check(found, number)
    for found, number in zip(dataset.__getitems__([8, 1]), [8, 1], strict=True):
        check(found, number)
    assert dataset[[]] == []
    for number, found in enumerate(dataset):
        check(found, number)


def test_the_index_may_be_in_another_place_than_the_shards(tmp_path: Path, s3_url: str) -> None:
    """Files that cannot be written, such as those of the Hub, are indexed elsewhere."""
    write(f"{s3_url}/apart")
    storage = open_storage(f"{s3_url}/apart")
    (tmp_path / "index").mkdir()
    (tmp_path / "index" / "index.json").write_bytes(storage.get("index.json").data)
    storage.delete("index.json")
    with pytest.raises(mdsx.MissingError):
        mdsx.Dataset(f"{s3_url}/apart")
    found = mdsx.Dataset(f"{s3_url}/apart", index=tmp_path / "index", cache=tmp_path / "cache")
    for number in (0, 77, N - 1):
        check(found[number], number)
    check(pickle.loads(pickle.dumps(found))[5], 5)


def test_take_returns_columns(dataset: mdsx.Dataset) -> None:
    columns = dataset.take([9, 2, 400])
    assert columns["id"].tolist() == [9, 2, 400]
    assert columns["ids"].shape == (3, 16)
    assert columns["flag"].dtype == np.bool_
    assert columns["half"].dtype == np.float32
    assert columns["text"] == ["text 9 é", "text 2 é", "text 400 é"]


@pytest.mark.slow_if("id == 's3 zstd'")
def test_a_dataset_works_across_pickle_fork_and_threads(dataset: mdsx.Dataset) -> None:
    check(dataset[3], 3)  # opens a shard, which must not be pickled
    check(pickle.loads(pickle.dumps(dataset))[77], 77)
    with multiprocessing.get_context("fork").Pool(2) as processes:
        for number, found in zip(range(0, N, 25), processes.map(dataset.__getitem__, range(0, N, 25)), strict=True):
            check(found, number)
    with ThreadPoolExecutor(8) as threads:
        for number, found in zip(range(N), threads.map(dataset.__getitem__, range(N)), strict=True):
            check(found, number)


def test_a_dataset_has_its_attributes(local_url: str) -> None:
    dataset = mdsx.Dataset(local_url)
    assert dataset.columns == COLUMNS
    assert dataset.metadata == {"made": "by hand"}
    assert len(dataset.fingerprint) == 32
    assert "samples=500" in repr(dataset)


@pytest.mark.parametrize("place", [N, -N - 1, [0, N]])
def test_out_of_range_raises_index_and_usage_error(local_url: str, place: Any) -> None:
    with pytest.raises(IndexError, match=str(N)) as caught:
        mdsx.Dataset(local_url)[place]
    assert isinstance(caught.value, mdsx.UsageError)


@pytest.mark.parametrize("place", ["3", 1.5, [[1]], [0.5], None])
def test_invalid_sample_numbers_are_refused(local_url: str, place: Any) -> None:
    with pytest.raises(mdsx.UsageError, match="integer"):
        mdsx.Dataset(local_url)[place]


def test_a_place_without_a_dataset_raises(tmp_path: Path, s3_url: str) -> None:
    for url in (str(tmp_path), str(tmp_path / "absent"), f"{s3_url}/absent"):
        with pytest.raises(mdsx.MissingError, match=r"index\.json"):
            mdsx.Dataset(url)
    with pytest.raises(mdsx.UsageError, match="s3://"):
        mdsx.Dataset("gopher://host/dataset")


def test_a_limit_below_the_largest_shard_raises(s3_url: str, tmp_path: Path) -> None:
    write(f"{s3_url}/dataset")
    with pytest.raises(mdsx.UsageError, match=r"mdsx.Cache\(limit=\d+\) or more"):
        mdsx.Dataset(f"{s3_url}/dataset", cache=mdsx.Cache(tmp_path / "cache", limit=1000))


# --- never a wrong byte


def flip(path: Path, at: int) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ 0x40]))


def index_of(url: Path) -> Index:
    return parse_index((url / "index.json").read_bytes())


@pytest.mark.parametrize("mmap", [True, False])
def test_a_flipped_byte_raises_naming_the_sample(tmp_path: Path, mmap: bool) -> None:
    write(str(tmp_path / "dataset"))
    shard = tmp_path / "dataset" / "shard.00000.mdsx"
    index = index_of(tmp_path / "dataset")
    flip(shard, index.rows_offset + 3 * index.schema.row_size + 60)
    dataset = mdsx.Dataset(tmp_path / "dataset", mmap=mmap)
    check(dataset[2], 2)
    with pytest.raises(mdsx.CorruptError, match="sample 3") as caught:
        dataset[3]
    assert "shard.00000.mdsx" in str(caught.value)


def test_a_damaged_sample_raises_and_others_stay_readable(tmp_path: Path) -> None:
    """Even after enough reads to check the whole shard, which finds the damage of another sample."""
    write(str(tmp_path / "dataset"))
    index = index_of(tmp_path / "dataset")
    flip(tmp_path / "dataset" / "shard.00000.mdsx", index.rows_offset + 3 * index.schema.row_size + 60)
    dataset, count = mdsx.Dataset(tmp_path / "dataset"), int(index.counts[0])
    for access in range(3 * count):
        if access % 5 == 0:
            with pytest.raises(mdsx.CorruptError, match="sample 3"):
                dataset[3]
            with pytest.raises(mdsx.CorruptError, match="sample 3"):
                dataset[[2, 3]]
        number = (2, 4, count - 1)[access % 3]
        check(dataset[number], number)
        check(dataset[[number]][0], number)
    with pytest.raises(mdsx.CorruptError, match="sample 3"):
        excerpt_of(dataset).shards.open(0, whole=True)  # as a stream opens it


def test_a_changed_row_raises_after_many_reads(tmp_path: Path) -> None:
    write(str(tmp_path / "dataset"))
    dataset = mdsx.Dataset(tmp_path / "dataset")
    index, shard = index_of(tmp_path / "dataset"), tmp_path / "dataset" / "shard.00000.mdsx"
    for _ in range(int(index.counts[0]) + 1):
        check(dataset[5], 5)
    flip(shard, index.rows_offset + 5 * index.schema.row_size + index.schema.row_size - 1)
    for found in (dataset, mdsx.Dataset(tmp_path / "dataset")):
        with pytest.raises(mdsx.CorruptError, match="sample 5"):
            found[5]
        with pytest.raises(mdsx.CorruptError, match="sample 5"):
            found[[5]]


@pytest.mark.slow_if("not single")
@pytest.mark.parametrize("single", [True, False])
def test_a_damaged_cache_never_returns_wrong_samples(s3_url: str, tmp_path: Path, single: bool) -> None:
    """A row that changes in a cached file is found, and the shard is downloaded again."""
    write(f"{s3_url}/dataset")
    options: dict[str, Any] = {"cache": mdsx.Cache(tmp_path / "cache", limit="1MB")}
    list(mdsx.Dataset(f"{s3_url}/dataset", **options))
    for path in (tmp_path / "cache").rglob("*.mdsx"):
        os.chmod(path, 0o600)
        flip(path, path.stat().st_size // 2)
    dataset = mdsx.Dataset(f"{s3_url}/dataset", **options)
    for _ in range(3):
        for number in range(0, N, 7 if single else 1):
            check(dataset[number] if single else dataset[[number]][0], number)


def test_a_damaged_cached_shard_is_downloaded_again(s3_url: str, tmp_path: Path) -> None:
    write(f"{s3_url}/dataset")
    options: dict[str, Any] = {"cache": mdsx.Cache(tmp_path / "cache", limit="1MB")}
    list(mdsx.Dataset(f"{s3_url}/dataset", **options))
    cached = sorted((tmp_path / "cache").rglob("*.mdsx"))
    assert cached
    for path in cached:
        os.chmod(path, 0o600)
        for at in range(200, path.stat().st_size, 97):
            flip(path, at)
    for number, found in enumerate(mdsx.Dataset(f"{s3_url}/dataset", **options)):
        check(found, number)


def test_a_missing_or_truncated_shard_is_named(tmp_path: Path) -> None:
    write(str(tmp_path / "dataset"))
    shard = tmp_path / "dataset" / "shard.00001.mdsx"
    shard.write_bytes(shard.read_bytes()[:-7])
    with pytest.raises(mdsx.CorruptError, match=r"shard\.00001\.mdsx"):
        list(mdsx.Dataset(tmp_path / "dataset"))
    shard.unlink()
    with pytest.raises(mdsx.MissingError, match=r"shard\.00001\.mdsx"):
        list(mdsx.Dataset(tmp_path / "dataset"))


def test_reading_ten_remote_samples_downloads_no_shard(s3_url: str, tmp_path: Path) -> None:
    write(f"{s3_url}/dataset")
    dataset = mdsx.Dataset(f"{s3_url}/dataset", cache=mdsx.Cache(tmp_path / "cache", limit="1MB"))
    for number in range(0, N, N // 10):
        check(dataset[number], number)
    assert not list((tmp_path / "cache").rglob("*.mdsx"))


def test_the_url_of_an_index_raises_with_advice(local_url: str, s3_url: str) -> None:
    write(f"{s3_url}/x")
    for url in (local_url, f"{s3_url}/x"):
        with pytest.raises(mdsx.MissingError, match=r"without /index\.json") as caught:
            mdsx.Dataset(f"{url}/index.json")
        assert str(caught.value).endswith(f": {url}")


def test_indices_of_any_integer_dtype_reach_every_sample(local_url: str) -> None:
    import torch

    dataset = mdsx.Dataset(local_url)  # more samples than 8 bits can count
    dtypes = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", ">i4"]
    indices: list[Any] = [np.array([1, 100], dtype) for dtype in dtypes]
    for places in (*indices, torch.tensor([1, 100], dtype=torch.uint8)):
        assert [sample["id"] for sample in dataset[places]] == [1, 100]
        assert dataset.take(places)["id"].tolist() == [1, 100]
    assert dataset[np.array([-1], np.int8)][0]["id"] == N - 1
    with pytest.raises(mdsx.UsageError, match=f"sample {2**63} is out of range"):
        dataset[np.array([2**63], np.uint64)]


def test_masks_raise_with_advice(local_url: str) -> None:
    for mask in ([True, False], np.zeros(N, bool), True):
        with pytest.raises(mdsx.UsageError, match=r"np\.flatnonzero"):
            mdsx.Dataset(local_url)[mask]


def test_the_error_for_the_name_of_a_column_shows_how_to_read_it(local_url: str) -> None:
    dataset = mdsx.Dataset(local_url)
    name = next(iter(dataset.columns))
    with pytest.raises(mdsx.UsageError, match=rf"; .*ds\.take\(range\(100\)\)\['{name}'\]"):
        dataset[name]  # type: ignore[index]
    with pytest.raises(mdsx.UsageError) as raised:
        dataset["lost"]  # type: ignore[index]
    assert raised.value.hint is None


def test_other_indices_raise_usage_error(local_url: str) -> None:
    import torch

    dataset = mdsx.Dataset(local_url)
    odd: list[Any] = [[1, [2]], np.array(["a"]), np.array([1], "m8[s]"), np.float32(1), "ab", 2**64, [2**64]]
    masked = np.ma.array([1, 2], mask=[False, True])
    for places in (*odd, masked, torch.empty(2, device="meta"), torch.tensor(1.5)):
        with pytest.raises(mdsx.UsageError, match="integer"):
            dataset[places]


@pytest.mark.parametrize("read", [mdsx.Dataset, mdsx.torch.StreamingDataset, lambda urls: mdsx.Loader(urls, 1)])
@pytest.mark.parametrize("several", [list, tuple])
def test_several_urls_name_the_mixture(read: Callable[[Any], object], several: type) -> None:
    with pytest.raises(mdsx.UsageError, match=r"to read several datasets as one, use mdsx\.Mixture"):
        read(several(["a", "b"]))
    with pytest.raises(mdsx.UsageError, match=r"not a URL \(expected a path, file://"):
        read(3)
