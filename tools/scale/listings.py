"""Which operations list, in a bucket of a million objects, and what that costs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from tempfile import TemporaryDirectory

import mdsx
from mdsx.format import filenames
from mdsx.storage import open_storage
from mdsx.writer.runs import Driver
from tools.pages import table
from tools.scale.made import COLUMNS, SAMPLES
from tools.scale.measured import HEADS, measured
from tools.scale.server import MadeServer

PARTS, SHARDS = 100_000, 9  # ten objects in each folder
OPERATIONS = {
    "list_all": "list all objects, as a yardstick",
    "open_dataset": "`Dataset`, and a sample",
    "load": "`Loader`, and its first batch",
    "write_part": "a writer of one more part, which resumes another",
    "append": "the same, and `mdsx append`",
    "write_with_engine": "an engine begins to replace the dataset, and aborts",
}
"""Functions of this module, which are called with a URL, and their titles."""


def sections(share: float = 1.0) -> Iterator[tuple[str, str]]:
    parts = max(int(PARTS * share), 4)
    rows = []
    for name, title in OPERATIONS.items():
        with MadeServer(parts, SHARDS, index=True) as server:
            figures = measured(f"tools.scale.listings:{name}", server, url=server.url)
        rows.append([title, *figures.cells])
        yield "listings", table([f"{parts * (SHARDS + 1):,} objects", *HEADS], rows, right=range(1, 4))


def list_all(url: str) -> int:
    return sum(1 for _ in open_storage(url).list())


def open_dataset(url: str) -> None:
    with TemporaryDirectory(ignore_cleanup_errors=True) as cache:
        dataset = mdsx.Dataset(url, cache=cache)
        assert dataset[len(dataset) // 2]["id"] < SAMPLES


def load(url: str) -> None:
    with TemporaryDirectory(ignore_cleanup_errors=True) as cache:
        loader = mdsx.Loader(mdsx.Dataset(url, cache=cache), batch_size=SAMPLES, seed=1)
        assert len(next(iter(loader))["id"]) == SAMPLES


def write_part(url: str) -> str:
    """Write one more part, half of it by a writer that fails, and return its name."""
    name = filenames.part(10**6)
    with suppress(KeyboardInterrupt), mdsx.Writer(f"{url}/{name}", COLUMNS, shard_size=2**10) as writer:
        _write(writer, 0, SAMPLES)
        raise KeyboardInterrupt
    with mdsx.Writer(f"{url}/{name}", COLUMNS, shard_size=2**10, resume=True) as writer:
        _write(writer, writer.samples, 2 * SAMPLES)
    return name


def _write(writer: mdsx.Writer, first: int, stop: int) -> None:
    for number in range(first, stop):
        writer.write({"id": number, "data": bytes(SAMPLES)})


def append(url: str) -> None:
    before = len(mdsx.Dataset(url))
    assert mdsx.append(url, write_part(url)).samples == 2 * SAMPLES
    assert len(mdsx.Dataset(url)) == before + 2 * SAMPLES


def write_with_engine(url: str) -> None:
    Driver.begin(url, COLUMNS, mode="replace").abort()
