"""A small dataset of many shards whose samples hold their number."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

import mdsx
from tools.servers.s3 import S3Server

COLUMNS = {
    "id": "int64",
    "tokens": "uint16[8]",
    "text": "str",
    "half": "bfloat16[2]",
    "flag": "bool",
    "maybe": "float32[*]?",
}


def sample(number: int) -> dict[str, object]:
    """Return the sample at place `number`."""
    return {
        "id": number,
        "tokens": np.arange(number, number + 8, dtype=np.uint16),
        "text": f"text of {number}",
        "half": [number % 256, 0.5],
        "flag": number % 3 == 0,
        "maybe": None if number % 2 else np.full(number % 5, number, np.float32),
    }


def write(url: str, count: int, shard_size: int = 4096, compression: str | None = None, first: int = 0) -> None:
    with mdsx.Writer(url, COLUMNS, shard_size=shard_size, compression=compression) as out:
        for number in range(first, first + count):
            out.write(sample(number))


@pytest.fixture(scope="session")
def local_url(tmp_path_factory: pytest.TempPathFactory) -> str:
    """1,003 samples in dozens of shards, on disk."""
    path: Path = tmp_path_factory.mktemp("dataset") / "local"
    write(str(path), 1003)
    return str(path)


@pytest.fixture
def brief_shutdown(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let a StatefulDataLoader wait 1 second instead of 5 for each worker that does not see the end of its queue.

    It waits when it is collected, so the test's loaders are collected before the pause is 5 seconds again.
    """
    monkeypatch.setattr("torch.utils.data._utils.MP_STATUS_CHECK_INTERVAL", 1.0)
    yield
    gc.collect()


@pytest.fixture(scope="session")
def remote_url(s3: S3Server) -> str:
    """The same on a real S3 server."""
    url = s3.make_bucket("remote") + "/dataset"
    write(url, 1003)
    return url


Reader = Callable[[], list[int]]
