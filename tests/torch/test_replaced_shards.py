"""Shards that are replaced, swapped or overwritten before or during a run. Reading raises an error that names the
shard, or returns the right samples. It never returns another shard's samples, even if that shard is undamaged."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import mdsx
from mdsx.datasets import excerpt_of
from mdsx.torch import StreamingDataLoader, StreamingDataset
from tools.fault_proxy import Exchange, Proxy, Reply
from tools.servers.s3 import S3Server

N, PER_SHARD = 128, 16
SHARDS = N // PER_SHARD
PLACES = ["local", "zstd", "s3", "s3 without ETags"]


def write(folder: Path, base: int, compression: str | None = None) -> None:
    with mdsx.Writer(folder, {"id": "int64", "tokens": "uint16[64]"}, shard_size=2600, compression=compression) as out:
        for number in range(base, base + N):
            out.write({"id": number, "tokens": np.full(64, number, np.uint16)})


def without_etag(exchange: Exchange) -> None:
    reply = exchange.forward()
    headers = {name: value for name, value in reply.headers.items() if name.lower() != "etag"}
    exchange.send(Reply(reply.status, headers, reply.body))


class Place:
    """A dataset, and the folder of its files, for each place to read it from."""

    def __init__(self, url: str, folder: Path, other: Path) -> None:
        self.url, self.folder, self._other = url, folder, other

    def names(self) -> list[str]:
        return sorted(path.name for path in self.folder.glob("shard.*"))

    def replace(self, *shards: int) -> None:
        """Replace shards by another dataset's, as a sync does."""
        for shard in shards:
            name = self.names()[shard]
            assert (self._other / name).stat().st_size == (self.folder / name).stat().st_size or ".zst" in name
            shutil.copy(self._other / name, self.folder / f"{name}.new")
            os.replace(self.folder / f"{name}.new", self.folder / name)

    def swap(self, first: int, second: int) -> None:
        one, two = (self.folder / self.names()[shard] for shard in (first, second))
        os.rename(one, self.folder / "aside")
        os.rename(two, one)
        os.rename(self.folder / "aside", two)

    def overwrite(self, *shards: int) -> None:
        """Overwrite in place, so that mapped bytes change."""
        for shard in shards:
            with open(self.folder / self.names()[shard], "r+b") as file:
                file.write((self._other / self.names()[shard]).read_bytes())


@pytest.fixture
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    kind: str = request.param
    compression = "zstd" if kind == "zstd" else None
    write(tmp_path / "other", 10_000, compression)
    url = folder = tmp_path / "data"
    write(folder, 0, compression)
    assert (
        excerpt_of(mdsx.Dataset(folder, cache=tmp_path / "first")).shards.index.counts.tolist() == [PER_SHARD] * SHARDS
    )
    if kind.startswith("s3"):
        server: S3Server = request.getfixturevalue("s3")
        bucket: str = request.getfixturevalue("s3_url")
        folder = server.directory / bucket.removeprefix("s3://") / "data"
        shutil.copytree(tmp_path / "data", folder)
        if kind != "s3":
            proxy: Proxy = request.getfixturevalue("proxy")
            proxy.add(without_etag)
        return Place(f"{bucket}/data", folder, tmp_path / "other")
    return Place(str(url), folder, tmp_path / "other")


def right(samples: list[int], error: mdsx.MdsxError | None) -> bool:
    """Return whether the samples are the dataset's, and complete unless an error names a shard."""
    assert error is None or "shard.0000" in str(error), error
    assert set(samples) <= set(range(N)), "samples of another shard"
    return error is None and len(samples) == N


def read(data: mdsx.Dataset, at_once: int) -> tuple[list[int], mdsx.MdsxError | None]:
    """Read every sample, that many at once, and return them with the last error."""
    found, failed = [], None
    for start in range(0, N, at_once):
        try:
            samples = [data[start]] if at_once == 1 else data[start : start + at_once]
        except mdsx.MdsxError as error:
            failed = error
            continue
        for number, sample in enumerate(samples, start):
            assert sample["id"] == number
            assert sample["tokens"].tolist() == [number] * 64
        found += [int(sample["id"]) for sample in samples]
    return found, failed


EACH_WAY = pytest.mark.parametrize(
    ("place", "at_once"),
    [("local", 1), ("local", 10), ("zstd", 1), ("zstd", 10), ("s3", 1), ("s3 without ETags", 10)],
    indirect=["place"],
)


@pytest.mark.slow_if("id == 's3-1'")
@EACH_WAY
def test_a_dataset_never_reads_a_shard_replaced_before(place: Place, tmp_path: Path, at_once: int) -> None:
    place.replace(2)
    place.swap(4, 5)
    for limit in ("1GB", 3000):
        data = mdsx.Dataset(place.url, cache=mdsx.Cache(tmp_path / "cache", limit=limit))
        for _ in range(2):
            found, error = read(data, at_once)
            assert not right(found, error)
            assert error is not None
            assert set(found).isdisjoint({*range(32, 48), *range(64, 96)})
            assert len(found) >= (80 if at_once == 1 else 60)  # the others are read


@pytest.mark.parametrize("change", ["replace", "swap", "overwrite"])
@EACH_WAY
def test_a_dataset_never_reads_a_shard_replaced_meanwhile(
    place: Place, tmp_path: Path, change: str, at_once: int
) -> None:
    for limit in ("1GB", 3000):
        data = mdsx.Dataset(place.url, cache=mdsx.Cache(tmp_path / "cache", limit=limit))
        assert right(*read(data, at_once)) or limit == 3000  # it was changed before
        if limit != 3000:
            getattr(place, change)(3, 6)
        for _ in range(2):
            found, error = read(data, at_once)
            assert right(found, error) or error is not None
            if change == "overwrite" and place.url == str(place.folder) and place.names()[0].endswith(".mdsx"):
                assert error is not None  # the mapped bytes have changed


def test_a_large_sample_overwritten_in_place_raises(tmp_path: Path) -> None:
    """mdsx does not hash large samples again if it has checked their whole shard."""
    for name, fill in (("data", 1), ("other", 2)):
        with mdsx.Writer(tmp_path / name, {"id": "int64", "data": "uint8[100000]"}, shard_size="350KB") as out:
            for number in range(3):
                out.write({"id": number, "data": np.full(100_000, fill, np.uint8)})
    data = mdsx.Dataset(tmp_path / "data")
    for number in range(9):
        assert data[number % 3]["data"][0] == 1
    (path,) = (tmp_path / "data").glob("shard.*")
    with open(path, "r+b") as file:
        file.write((tmp_path / "other" / path.name).read_bytes())
    with pytest.raises(mdsx.CorruptError, match=path.name):
        data[1]
    with open(path, "r+b") as file:
        file.write(bytes(100))
    with pytest.raises(mdsx.CorruptError, match=path.name):
        data[1]


@pytest.mark.slow_if("workers == 2 and id != 's3-3-1GB-2'")
@pytest.mark.parametrize(
    ("place", "moment", "limit", "workers"),
    [
        *((place, moment, limit, 0) for place in PLACES for moment in (0, 3) for limit in (3000, "1GB")),
        *((place, 0, limit, 2) for place, limit in zip(PLACES, ("1GB", 3000, 3000, "1GB"), strict=True)),
        *((place, 3, limit, 2) for place, limit in zip(PLACES, (3000, "1GB", "1GB", 3000), strict=True)),
    ],
    indirect=["place"],
)
@pytest.mark.filterwarnings("ignore:the cache may hold")
def test_a_loader_never_reads_a_replaced_shard(
    place: Place, tmp_path: Path, limit: int | str, workers: int, moment: int
) -> None:
    """The test replaces or swaps all shards before or during the epoch."""

    def swap() -> None:
        for shard in range(0, SHARDS, 2):
            place.swap(shard, shard + 1)

    changes: list[Callable[[], None]] = [lambda: place.replace(*range(SHARDS)), swap][: 1 if moment else 2]
    backup = tmp_path / "backup"
    shutil.copytree(place.folder, backup)
    for change in changes:
        shutil.copytree(backup, place.folder, dirs_exist_ok=True)
        shutil.rmtree(tmp_path / "cache", ignore_errors=True)
        data = StreamingDataset(
            place.url, cache=mdsx.Cache(tmp_path / "cache", limit=limit), shuffle=mdsx.Shuffle(shuffle_block=32)
        )
        batches = iter(StreamingDataLoader(data, 8, num_workers=workers))
        found: list[int] = []
        failed: mdsx.MdsxError | None = None
        if moment == 0:
            change()
        try:
            for count, batch in enumerate(batches, 1):
                assert batch["tokens"][:, 5].tolist() == batch["id"].tolist()
                found += batch["id"].tolist()
                if count == moment:
                    change()
        except mdsx.MdsxError as error:
            failed = error
        assert right(found, failed) or failed is not None
        assert moment or failed is not None
        del batches
