"""A dataset has more shards than a process may open files, while the user has opened half of the limit."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import mdsx
from mdsx.datasets import excerpt_of
from tests.conftest import Often
from tests.fork_server import call
from tests.torch.many_shards import read_all
from tools.servers.s3 import S3Server

FILES = 256
PARTS = 20
PER_SHARD = 4

pytestmark = pytest.mark.timeout(3600)  # `read` has a deadline of its own


@pytest.fixture(scope="module")
def shards(often: Often) -> int:
    return often(300, 5000)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory, shards: int) -> Path:
    """Two datasets of `shards` shards, "plain" and "zstd", each of 20 parts."""
    folder = tmp_path_factory.mktemp("many")
    for name, compression in (("plain", None), ("zstd", "zstd")):
        for part in range(PARTS):
            url = folder / name / f"part-{part:05}"
            with mdsx.Writer(url, {"id": "int64"}, shard_size=192, compression=compression) as out:
                samples = shards * PER_SHARD // PARTS
                for number in range(part * samples, (part + 1) * samples):
                    out.write({"id": number})
        mdsx.merge(str(folder / name))
        assert len(excerpt_of(mdsx.Dataset(folder / name, cache=folder / "cache")).shards.index.counts) == shards
    return folder


def read(shards: int, cache: Path, *urls: str) -> list[int]:
    return call(read_all, FILES, str(cache), list(urls), timeout=200 + shards / 2)


@pytest.mark.slow_if("place != 'plain'")
@pytest.mark.parametrize("place", ["plain", "zstd", "s3"])
def test_more_shards_than_files_may_be_open(
    written: Path, tmp_path: Path, shards: int, place: str, request: pytest.FixtureRequest
) -> None:
    url = str(written / place)
    if place == "s3":
        server: S3Server = request.getfixturevalue("s3")
        shutil.copytree(written / "plain", server.directory / "many" / "plain")
        url = "s3://many/plain"
    assert read(shards, tmp_path / "cache", url) == [shards * PER_SHARD] * 5


@pytest.mark.slow_if("place == 'zstd'")
@pytest.mark.parametrize("place", ["plain", "zstd"])
def test_a_mixture_shares_the_processs_open_files(written: Path, tmp_path: Path, shards: int, place: str) -> None:
    parts = [str(written / place / f"part-{part:05}") for part in range(PARTS)]
    assert read(shards, tmp_path / "cache", *parts) == [shards * PER_SHARD] * 2
