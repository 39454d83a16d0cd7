"""What a resume keeps, rewrites and removes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import mdsx
from mdsx.errors import CorruptError, UnsupportedError, UsageError
from mdsx.format import parse_index
from mdsx.writer import Writer
from tests.writer.jobs import COLUMNS, SHARD_SIZE, Contents, DieBefore, contents, killed, sample, start, write

COUNT = 660  # samples: some 70 shards, 64 of them in a journal


class Stop(Exception):
    """Makes a job leave its `with`."""


def leave(root: Path, count: int = COUNT, **options: Any) -> None:
    """Leave an unfinished dataset: its closed shards, and the journal of the first 64."""
    with pytest.raises(Stop), Writer(root, COLUMNS, **{"shard_size": SHARD_SIZE, "resume": True, **options}) as out:  # noqa: PT012
        for number in range(out.samples, count):
            out.write(sample(number))
        raise Stop


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Contents:
    root = tmp_path_factory.mktemp("undisturbed")
    write(root, COUNT)
    return contents(root)


@pytest.fixture(scope="module")
def counts(undisturbed: Contents) -> list[int]:
    """Return the samples of each shard of an uninterrupted run."""
    data = undisturbed["index.json"]
    assert data is not None
    found: list[int] = parse_index(data).counts.tolist()
    assert len(found) > 66
    return found


def flip(path: Path) -> None:
    """Damage the last byte of a file."""
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


def test_a_resume_continues_after_the_durable_samples(tmp_path: Path, undisturbed: Contents, counts: list[int]) -> None:
    leave(tmp_path)
    assert write(tmp_path, COUNT) == sum(counts[:-1])
    assert contents(tmp_path) == undisturbed


def test_a_resume_of_nothing_starts_a_dataset(tmp_path: Path, undisturbed: Contents) -> None:
    assert write(tmp_path / "new", COUNT) == 0
    assert contents(tmp_path / "new") == undisturbed


def test_a_resumed_job_may_have_nothing_more_to_write(tmp_path: Path, counts: list[int]) -> None:
    leave(tmp_path)
    assert write(tmp_path, sum(counts[:-1])) == sum(counts[:-1])
    assert parse_index((tmp_path / "index.json").read_bytes()).counts.tolist() == counts[:-1]


def test_shards_in_a_journal_are_not_read_again(tmp_path: Path) -> None:
    leave(tmp_path)
    flip(tmp_path / "shard.00005.mdsx")  # the resume must not read it
    damaged = (tmp_path / "shard.00005.mdsx").read_bytes()
    write(tmp_path, COUNT)
    assert (tmp_path / "shard.00005.mdsx").read_bytes() == damaged


@pytest.mark.parametrize("compression", [None, "zstd"])
def test_a_damaged_shard_after_the_journals_is_rewritten(
    tmp_path: Path, counts: list[int], compression: str | None
) -> None:
    leave(tmp_path / "a", compression=compression)
    write(tmp_path / "b", COUNT, compression=compression)
    (damaged,) = (tmp_path / "a").glob("shard.00065.*")
    flip(damaged)
    with pytest.warns(UserWarning, match="shard.00065.*rewritten"):
        assert write(tmp_path / "a", COUNT, compression=compression) == sum(counts[:65])
    assert contents(tmp_path / "a") == contents(tmp_path / "b")


@pytest.mark.parametrize("compression", [None, "zstd"])
def test_a_truncated_shard_ends_the_run_even_in_a_journal(
    tmp_path: Path, counts: list[int], compression: str | None
) -> None:
    leave(tmp_path / "a", compression=compression)
    write(tmp_path / "b", COUNT, compression=compression)
    (cut,) = (tmp_path / "a").glob("shard.00005.*")
    cut.write_bytes(cut.read_bytes()[:-1])
    with pytest.warns(UserWarning, match="shard.00005.*rewritten"):
        assert write(tmp_path / "a", COUNT, compression=compression) == sum(counts[:5])
    assert contents(tmp_path / "a") == contents(tmp_path / "b")


def test_shards_after_a_missing_one_are_removed(tmp_path: Path, undisturbed: Contents, counts: list[int]) -> None:
    leave(tmp_path)
    (tmp_path / "shard.00005.mdsx").unlink()
    leave(tmp_path, count=0)
    assert sorted(path.name for path in tmp_path.glob("shard.*")) == [f"shard.{n:05d}.mdsx" for n in range(5)]
    assert not list(tmp_path.glob("_mdsx/journal.*"))  # it listed removed shards
    assert write(tmp_path, COUNT) == sum(counts[:5])
    assert contents(tmp_path) == undisturbed


def test_only_files_of_a_dead_writer_are_removed(tmp_path: Path, undisturbed: Contents) -> None:
    leave(tmp_path)
    ours = [".shard.00070.mdsx.0123456789abcdef.mdsx-tmp", "_mdsx/.journal.00001.json.0123.mdsx-tmp"]
    ours += ["shard.00099.mdsx", "shard.00000.mdsx.zst"]
    others = ["notes.txt", "shard.txt", "shard.1.mdsx", "part-00000/shard.00000.mdsx", "part-00000/index.json"]
    for name in ours + others:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"rubbish")
    write(tmp_path, COUNT)
    found = contents(tmp_path)
    assert {name: found.pop(name) for name in others} == dict.fromkeys(others, b"rubbish")
    assert found.pop("part-00000", b"") is None
    assert found == undisturbed


@pytest.mark.parametrize(
    ("options", "place"),
    [
        ({"columns": {**COLUMNS, "new": "int8"}}, "columns"),
        ({"columns": dict(reversed(COLUMNS.items()))}, "columns"),
        ({"columns": {**COLUMNS, "id": "int32"}}, "columns"),
        ({"shard_size": SHARD_SIZE + 1}, "shard_size"),
        ({"compression": "zstd"}, "compression"),
    ],
)
def test_other_options_are_refused(tmp_path: Path, options: dict[str, Any], place: str) -> None:
    leave(tmp_path, 100)
    before = contents(tmp_path)
    with pytest.raises(UsageError, match=rf"writer\.json: {place}: the dataset was begun with other options"):
        Writer(tmp_path, **{"columns": COLUMNS, "shard_size": SHARD_SIZE, "resume": True, **options})
    assert contents(tmp_path) == before


def test_equivalent_options_are_equal(tmp_path: Path) -> None:
    leave(tmp_path, 100, shard_size="1kB", compression="zstd")
    write(tmp_path, 100, shard_size=1000, compression="zstd:3")


def test_a_finished_dataset_takes_no_more_samples(tmp_path: Path, undisturbed: Contents) -> None:
    write(tmp_path, COUNT)
    with Writer(tmp_path, COLUMNS, resume=True) as out:
        assert out.samples == COUNT
        with pytest.raises(UsageError, match="the dataset is finished"):
            out.write(sample(COUNT))
        with pytest.raises(UsageError, match="the dataset is finished"):
            out.write_batch({name: [sample(COUNT)[name]] for name in COLUMNS})
    assert contents(tmp_path) == undisturbed


def test_a_finished_dataset_with_other_options_is_refused(tmp_path: Path) -> None:
    write(tmp_path, 10)
    with pytest.raises(UsageError, match="columns: the dataset was written with other options"):
        Writer(tmp_path, {"id": "int64"}, resume=True)
    with pytest.raises(UsageError, match="compression: the dataset was written with other options"):
        Writer(tmp_path, COLUMNS, compression="zstd", resume=True)


def test_leftovers_of_a_finished_dataset_are_removed(tmp_path: Path, undisturbed: Contents) -> None:
    leave(tmp_path)
    record = (tmp_path / "_mdsx" / "writer.json").read_bytes()
    write(tmp_path, COUNT)
    (tmp_path / "_mdsx").mkdir()
    (tmp_path / "_mdsx" / "writer.json").write_bytes(record)
    with Writer(tmp_path, COLUMNS, shard_size=SHARD_SIZE, resume=True) as out:
        assert out.samples == COUNT
    assert contents(tmp_path) == undisturbed


def test_shards_without_a_record_are_refused(tmp_path: Path) -> None:
    leave(tmp_path, 100)
    (tmp_path / "_mdsx" / "writer.json").unlink()
    before = contents(tmp_path)
    with pytest.raises(UsageError, match="without a writer's record"):
        Writer(tmp_path, COLUMNS, shard_size=SHARD_SIZE, resume=True)
    assert contents(tmp_path) == before


@pytest.mark.parametrize("damage", [b"", b"{}", b"not JSON"])
def test_a_damaged_journal_is_ignored(tmp_path: Path, undisturbed: Contents, damage: bytes) -> None:
    leave(tmp_path)
    (tmp_path / "_mdsx" / "journal.00000.json").write_bytes(damage)
    write(tmp_path, COUNT)
    assert contents(tmp_path) == undisturbed


def test_a_resume_writes_a_missing_journal(tmp_path: Path) -> None:
    leave(tmp_path)
    journal = tmp_path / "_mdsx" / "journal.00000.json"
    data = journal.read_bytes()
    journal.unlink()
    leave(tmp_path, 0)
    assert journal.read_bytes() == data


def test_a_damaged_record_raises_with_advice(tmp_path: Path) -> None:
    leave(tmp_path, 100)
    record = tmp_path / "_mdsx" / "writer.json"
    written = record.read_bytes()
    record.write_bytes(written[:-2])
    with pytest.raises(CorruptError, match=r"writer\.json.*start again"):
        Writer(tmp_path, COLUMNS, shard_size=SHARD_SIZE, resume=True)
    record.write_bytes(json.dumps(json.loads(written) | {"version": 2}).encode())
    with pytest.raises(UnsupportedError, match="another version of mdsx"):
        Writer(tmp_path, COLUMNS, shard_size=SHARD_SIZE, resume=True)


def test_another_libzstd_warns(tmp_path: Path) -> None:
    leave(tmp_path, 100, compression="zstd")
    record = tmp_path / "_mdsx" / "writer.json"
    record.write_bytes(json.dumps(json.loads(record.read_bytes()) | {"libzstd": "0.8.0"}).encode())
    with pytest.warns(UserWarning, match=r"begun with libzstd 0\.8\.0"):
        write(tmp_path, 100, compression="zstd")
    assert (tmp_path / "index.json").exists()


def test_a_refilled_shards_journal_is_removed_first(tmp_path: Path, undisturbed: Contents, counts: list[int]) -> None:
    """The 64th shard is a job's short last shard, in a journal. The next job fills it."""
    short = sum(counts[:63]) + 1
    assert killed(start(tmp_path, short, hook=DieBefore("index.json")))
    journal = tmp_path / "_mdsx" / "journal.00000.json"
    assert parse_index(journal.read_bytes()).samples == short
    assert killed(start(tmp_path, COUNT, hook=DieBefore("shard.00063.mdsx")))
    assert not journal.exists()
    assert write(tmp_path, COUNT) == short
    assert contents(tmp_path) == undisturbed


def test_a_damaged_short_shard_is_not_refilled(tmp_path: Path, counts: list[int]) -> None:
    """It is in a journal, so the resume itself does not read it."""
    short = sum(counts[:63]) + 1
    assert killed(start(tmp_path, short, hook=DieBefore("index.json")))
    flip(tmp_path / "shard.00063.mdsx")
    with pytest.raises(CorruptError, match=r"shard\.00063\.mdsx.*remove the shard, and resume"):
        write(tmp_path, COUNT)
    (tmp_path / "shard.00063.mdsx").unlink()
    assert write(tmp_path, COUNT) == sum(counts[:63])


def test_a_full_last_shard_is_not_rewritten(tmp_path: Path, counts: list[int]) -> None:
    leave(tmp_path)
    last = tmp_path / f"shard.{len(counts) - 2:05d}.mdsx"
    before = last.stat()
    write(tmp_path, COUNT)
    assert (last.stat().st_ino, last.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


@pytest.mark.parametrize("compression", [None, "zstd"])
def test_a_journaled_shard_of_another_dataset_is_written_again(tmp_path: Path, compression: str | None) -> None:
    """Name, columns and size are equal, and the shard is undamaged: only the row key differs."""
    leave(tmp_path / "x", compression=compression)
    shards = [tmp_path / "x" / f"shard.{number:05d}.mdsx{'.zst' if compression else ''}" for number in range(64)]
    by_size: dict[int, list[Path]] = {}
    for path in shards:
        by_size.setdefault(path.stat().st_size, []).append(path)
    one, other = next(paths for paths in by_size.values() if len(paths) > 1)[:2]
    expected = one.read_bytes()
    one.write_bytes(other.read_bytes())
    with pytest.warns(UserWarning, match=rf"{one.name}: another shard than the writer's is stored here"):
        write(tmp_path / "x", COUNT, compression=compression)
    assert one.read_bytes() == expected
    assert list(mdsx.verify(tmp_path / "x")) == []


def test_too_many_shards_raise_before_the_next_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mdsx.format.index_writer.MAX_SHARDS", 5)
    monkeypatch.setattr("mdsx.writer.uploads.MAX_SHARDS", 5)
    with pytest.raises(UsageError, match=r"at most 5 .*shard_size=\"1MiB\" or more"):
        write(tmp_path, COUNT)
    assert len(list(tmp_path.glob("shard.*"))) == 5
    assert not (tmp_path / "index.json").exists()
