"""A power cut at any instant: indexes name only durable shards, and a resume gives an uninterrupted run's bytes."""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pytest

from mdsx.format import parse_index
from mdsx.writer import merge
from tests.conftest import Often
from tests.writer.jobs import Contents, contents, write
from tests.writer.power_cut import Disk, Job, Note, record, replay

COUNT = 660  # samples: some 70 shards, 64 of them in a journal
FEW = 40  # samples: 5 shards


def job(top: Path, count: int = COUNT, compression: str | None = None) -> None:
    write(top / "some" / "dataset", count, compression=compression)


def parts_and_merge(top: Path) -> None:
    root = top / "dataset"
    for part in range(3):
        write(root / f"part-{part:05d}", 12 * part)
    merge(root, overwrite=True)


def check(notes: Sequence[Note], top: Path, *, finished: str = "") -> Disk:
    """Assert that no power cut during `notes` breaks or loses finished work, and that the final disk is right."""
    disk = Disk()
    for number, disk in enumerate(replay(notes)):
        assert not list(disk.flaws()), f"after operation {number - 1}: {notes[number - 1]}"
    assert disk.contents() == contents(top)  # everything was recorded
    assert not finished or disk.keeps(finished)
    return disk


def resume_from_cuts(work: Job, notes: Sequence[Note], undisturbed: Contents, folder: Path, count: int) -> None:
    """Cut the power after some operations, and let `work` continue from each possible disk."""
    rng = random.Random(len(notes))
    wanted = {*rng.sample(range(len(notes)), min(count, len(notes))), *range(len(notes) - 8, len(notes))}
    for number, disk in enumerate(replay(notes)):
        if number in wanted:
            disk.cut(rng, cut := folder / f"cut-{number}")
            work(cut)
            assert contents(cut) == undisturbed, f"before operation {number}: {notes[number]}"


def written(root: Path, count: int) -> Contents:
    write(root, count)
    return contents(root)


@pytest.fixture
def top(tmp_path: Path) -> Path:
    (tmp_path / "top").mkdir()
    return tmp_path / "top"


@pytest.mark.slow_if("compression is None")
@pytest.mark.parametrize("compression", [None, "zstd"])
def test_a_resume_continues_after_any_power_cut(compression: str | None, top: Path, often: Often) -> None:
    work = partial(job, compression=compression)
    notes = record(work, top)
    check(notes, top, finished="some/dataset/index.json")
    resume_from_cuts(work, notes, contents(top), top.parent, often(12, long=400))


def test_a_merge_continues_after_any_power_cut(top: Path, often: Often) -> None:
    notes = record(parts_and_merge, top)
    check(notes, top, finished="dataset/index.json")
    resume_from_cuts(parts_and_merge, notes, contents(top), top.parent, often(12, long=400))


@pytest.mark.slow_if("id == 'dataset'")
@pytest.mark.parametrize("work", [partial(job, count=FEW), parts_and_merge], ids=["dataset", "parts"])
def test_a_power_cut_after_a_kill_loses_nothing(work: Job, top: Path, often: Often) -> None:
    """A resume first makes durable what a dead process only made visible."""
    count = len(record(work, top))
    for die_at in {*range(count - 16, count), *random.Random(7).sample(range(count), often(2, long=count))}:
        root = top.parent / f"killed-{die_at}"
        root.mkdir()
        notes = record(work, root, die_at=die_at) + record(work, root)
        (finished,) = {"some/dataset/index.json", "dataset/index.json"} & contents(root).keys()
        check(notes, root, finished=finished)
        assert contents(root) == contents(top)


def test_a_power_cut_while_refilling_a_shard_loses_nothing(top: Path) -> None:
    """The journal that names the shard is durably removed before the longer shard replaces it."""
    counts = parse_index(written(top.parent / "whole", COUNT)["index.json"] or b"").counts
    short = partial(job, count=int(counts[:63].sum()) + 1)
    notes = record(short, top, die_at=".index.json")
    assert (top / "some" / "dataset" / "_mdsx" / "journal.00000.json").exists()
    check(notes + record(job, top), top, finished="some/dataset/index.json")


@pytest.mark.parametrize(
    ("left_out", "flaw"),
    [("file", "index.json may be cut"), ("folder", "index.json may be there, and shard.00000.mdsx not")],
)
def test_a_missing_sync_is_detected(left_out: str, flaw: str, top: Path) -> None:
    """So the tests above can fail."""
    notes = record(partial(job, count=FEW), top)
    kept = [note for note in notes if note.what != "sync" or note.path.endswith("-tmp") == (left_out == "folder")]
    disk, flaws = Disk(), set()
    for disk in replay(kept):
        flaws |= set(disk.flaws())
    assert f"some/dataset/{flaw}" in flaws
    assert not disk.keeps("some/dataset/index.json")
