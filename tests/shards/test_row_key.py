"""No way of reading a dataset returns a sample of another shard."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mdsx
from mdsx.format import header_row_key, parse_index

N = 64
READS: dict[str, Callable[[mdsx.Dataset, int], Any]] = {
    "one": lambda data, number: data[number],
    "list": lambda data, number: data[[number]],
    "slice": lambda data, number: data[number : number + 1],
    "take": lambda data, number: data.take([number]),
}


def write(root: Path, offset: int, compression: str | None) -> None:
    """Four shards of 16 samples; another offset gives other samples of the same sizes."""
    with mdsx.Writer(root, {"id": "int64", "data": "uint8[4096]"}, shard_size="66KiB", compression=compression) as out:
        rng = np.random.Generator(np.random.PCG64(offset))  # the same size, compressed or not
        for number in range(N):
            out.write({"id": number + offset, "data": rng.integers(0, 256, 4096, np.uint8)})


def swapped(root: Path) -> Iterator[int]:
    """Swap the first two shards. Return the first samples of both."""
    first, second, *_ = sorted(root.glob("shard.*"))
    first.rename(root / "x")
    second.rename(first)
    (root / "x").rename(second)
    yield from (0, 16)


def foreign(root: Path) -> Iterator[int]:
    """Replace the third shard by another dataset's, with the same columns, count and size."""
    name = sorted(path.name for path in root.glob("shard.*"))[2]
    shutil.copy(root.parent / "other" / name, root / name)
    yield 32


@pytest.mark.parametrize("mmap", [True, False])
@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize("replace", [swapped, foreign])
def test_another_shard_in_place_is_an_error(
    tmp_path: Path, replace: Callable[[Path], Iterator[int]], read: str, mmap: bool
) -> None:
    write(tmp_path / "data", 0, None)
    write(tmp_path / "other", 1000, None)
    for number in replace(tmp_path / "data"):
        data = mdsx.Dataset(tmp_path / "data", mmap=mmap)
        with pytest.raises(mdsx.CorruptError, match=f"shard.0000{number // 16}.mdsx"):
            READS[read](data, number)


def test_a_cached_file_of_another_shard_is_not_used(tmp_path: Path) -> None:
    """Even with a trusted cache: opening compares the row keys."""
    write(tmp_path / "data", 0, "zstd")
    options: dict[str, Any] = {"cache": mdsx.Cache(tmp_path / "cache", limit="1MB", verify="size")}
    expected = mdsx.Dataset(tmp_path / "data", **options)[:]
    files = [path for path in (tmp_path / "cache").rglob("*") if path.is_file() and path.stat().st_size > 60_000]
    assert len(files) == 4
    sizes = {path.stat().st_size for path in files}
    assert len(sizes) == 1
    last = files[-1].read_bytes()
    files[-1].write_bytes(files[0].read_bytes())
    files[0].write_bytes(last)
    found = mdsx.Dataset(tmp_path / "data", **options)[:]
    assert [sample["id"] for sample in found] == [sample["id"] for sample in expected]


def test_the_index_has_the_key_of_each_shard(tmp_path: Path) -> None:
    write(tmp_path / "data", 0, None)
    index = parse_index((tmp_path / "data" / "index.json").read_bytes())
    headers = [header_row_key((tmp_path / "data" / index.name(shard)).read_bytes()) for shard in range(4)]
    assert index.row_keys.tolist() == headers == [index.shard_entry(shard).row_key for shard in range(4)]
    assert len(set(headers)) == 4
