"""A repair that is killed, at whatever instant, leaves the old dataset or the repaired one; the next ends its work."""

from __future__ import annotations

import multiprocessing
import shutil
from pathlib import Path

import pytest

import mdsx
from tests.conftest import Often
from tests.damage.datasets import read, samples, write
from tests.writer import jobs
from tests.writer.jobs import Contents, DieAt, contents, killed

WRITTEN = samples(120)
_CONTEXT = multiprocessing.get_context("forkserver")


def _run(root: str, changes: int) -> None:
    hook = DieAt(changes)
    for name in ("open", "write", "fsync", "replace", "unlink", "rmdir", "mkdir"):
        jobs._watch(name, hook)
    mdsx.repair(root, drop_damaged=True, threads=1)


def damaged(root: Path, compression: str | None) -> None:
    """Two damaged shards, one that is gone, and a damaged index for every second test."""
    write(root, WRITTEN, shard_size=1500, compression=compression)
    first, second, third, *_ = sorted(root.glob("shard.*"))
    data = bytearray(first.read_bytes())
    data[-1] ^= 1  # a sample; or the seek table
    first.write_bytes(data)
    second.write_bytes(second.read_bytes()[:-1])
    third.unlink()


@pytest.mark.parametrize("index", ["sound", "damaged"])
@pytest.mark.parametrize("compression", [None, "zstd"])
def test_killed_before_any_change_of_the_disk(
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
        process = _CONTEXT.Process(target=_run, args=(str(root), changes))
        process.start()
        if not killed(process):
            break
        deaths += 1
        old_or_new(contents(root), before, after)
        mdsx.repair(root, drop_damaged=True)
        assert finished(contents(root)) == after, f"killed before change {changes}"
        assert list(mdsx.verify(root)) == []
        assert read(root) == left
    assert deaths > 3


def old_or_new(found: Contents, before: Contents, after: Contents) -> None:
    """The index is the old one, or the new one with all that it names; what was there before is there still."""
    assert found["index.json"] in (before["index.json"], after["index.json"])
    if found["index.json"] == after["index.json"]:
        assert finished(found) == after
    assert {name: found[name] for name in before if name != "index.json"} == {
        name: data for name, data in before.items() if name != "index.json"
    }


def finished(found: Contents) -> Contents:
    """Without what a put that was killed left under a hidden name."""
    return {name: data for name, data in found.items() if not name.startswith(".")}
