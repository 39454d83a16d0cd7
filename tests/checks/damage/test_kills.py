"""A repair killed at any instant leaves the old dataset or the repaired one; the next repair completes it."""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path

import pytest

import mdsx
from mdsx.checks.damage import Repair
from mdsx.storage import open_storage
from tests.checks.damage.datasets import read, samples, write
from tests.conftest import Often
from tests.writer.jobs import Contents, DieAt, contents, killed, start_job

WRITTEN = samples(120)


def damaged(root: Path, compression: str | None) -> None:
    """Write two damaged shards, remove one, and damage the index for every second test."""
    write(root, WRITTEN, shard_size=1500, compression=compression)
    first, second, third, *_ = sorted(root.glob("shard.*"))
    data = bytearray(first.read_bytes())
    data[-1] ^= 1  # a sample; or the seek table
    first.write_bytes(data)
    second.write_bytes(second.read_bytes()[:-1])
    third.unlink()


def job(url: Path | str) -> partial[Repair]:
    return partial(mdsx.repair, str(url), drop_damaged=True, num_threads=1)


@pytest.mark.slow_if("(compression, index) != ('zstd', 'damaged')")
@pytest.mark.parametrize("index", ["undamaged", "damaged"])
@pytest.mark.parametrize("compression", [None, "zstd"])
def test_a_kill_before_any_disk_change_loses_nothing(
    compression: str | None, index: str, tmp_path: Path, often: Often
) -> None:
    source = tmp_path / "damaged"
    damaged(source, compression)
    if index == "damaged":
        (source / "index.json").write_bytes((source / "index.json").read_bytes()[:-30])
    before = contents(source)
    shutil.copytree(source, tmp_path / "undisturbed")
    mdsx.repair(tmp_path / "undisturbed", drop_damaged=True)
    after = contents(tmp_path / "undisturbed")
    left = read(tmp_path / "undisturbed")
    deaths = 0
    for changes in range(0, 200, 4 // often(1, long=4)):
        root = tmp_path / str(changes)
        shutil.copytree(source, root)
        if not killed(start_job(job(root), hook=DieAt(changes))):
            break
        deaths += 1
        old_or_new(contents(root), before, after)
        mdsx.repair(root, drop_damaged=True)
        assert finished(contents(root)) == after, f"killed before change {changes}"
        assert list(mdsx.verify(root)) == []
        assert read(root) == left
    assert deaths > 3


def old_or_new(found: Contents, before: Contents, after: Contents) -> None:
    """Check that the index is the old one, or the new one with all its shards, and that every original file exists."""
    assert found["index.json"] in (before["index.json"], after["index.json"])
    if found["index.json"] == after["index.json"]:
        assert finished(found) == after
    assert {name: found[name] for name in before if name != "index.json"} == {
        name: data for name, data in before.items() if name != "index.json"
    }


def finished(found: Contents) -> Contents:
    """Return the files without the hidden ones that a killed put left."""
    return {name: data for name, data in found.items() if not name.startswith(".")}


def test_a_kill_before_any_s3_request_loses_nothing(s3_url: str, tmp_path: Path, often: Often) -> None:
    damaged(tmp_path, None)
    before = (tmp_path / "index.json").read_bytes()
    deaths = 0
    for requests in range(0, 200, 12 // often(1, long=12)):
        storage = open_storage(f"{s3_url}/{requests}")
        for path in tmp_path.iterdir():
            storage.put(path.name, path.read_bytes())
        if not killed(start_job(job(storage.url), hook=DieAt(requests))):
            break
        deaths += 1
        index = storage.get("index.json").data
        if index != before:
            assert list(mdsx.verify(storage.url)) == [], requests
        mdsx.repair(storage.url, drop_damaged=True)
        assert list(mdsx.verify(storage.url)) == [], requests
        assert len(list(storage.list("index.before-repair-"))) == 1, requests
    assert deaths
