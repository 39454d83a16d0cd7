"""A clean removes what dead runs left, by age, and never what a running run, a dataset or another writer needs."""

from __future__ import annotations

import fcntl
import json
import multiprocessing
import os
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import boto3
import pytest

import mdsx
from mdsx.format import filenames
from mdsx.storage import open_storage
from mdsx.storage.local import LocalStorage
from mdsx.writer import write_part
from mdsx.writer.runs import Cleaned, Done, Driver, WriteJob, record, replaced
from mdsx.writer.runs.record import RunRecord
from tests.writer.runs.test_commit import COLUMNS, SAMPLES, batches, begin, fails, keys, numbers

DAY = 86400.0


@pytest.fixture
def url(tmp_path: Path) -> str:
    return str(tmp_path / "out")


def age(url: str | Path, seconds: float = 2 * DAY) -> None:
    """Let all files at `url` be older, but for those whose ETags somebody keeps, and which have the time in them."""
    root = Path(url)
    for path in root.rglob("*"):
        key = str(path.relative_to(root))
        if path.is_file() and not key.startswith(("index", "_lengths")):
            status = path.stat()
            os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns - int(seconds * 1e9)))


def folders(url: str) -> set[str]:
    return {folder for key in keys(open_storage(url)) if (folder := attempt(key))}


def attempt(key: str) -> str:
    """Return the folder of the attempt that a key is in; "" if it is in none."""
    return filenames.split_part(key)[0] if filenames.run_of(key) else ""


def die(driver: Driver) -> None:
    """End a run as a kill does: it gives no more signs of life."""
    driver.record.stop()


def dead(url: str, *parts: int) -> list[Done]:
    """Let a run write these parts, and die two days ago."""
    driver = begin(url)
    done = [write_part(driver.job, part, batches(part)) for part in parts]
    with pytest.raises(RuntimeError):
        write_part(driver.job, 9, fails(9))
    die(driver)
    age(url)
    return done


def kinds(done: Cleaned) -> list[str]:
    return [leftover.kind for leftover in done.removed]


def test_a_place_with_nothing_to_remove_stays_as_it_is(url: str) -> None:
    assert not mdsx.clean(url).removed
    assert not Path(url).exists()
    with mdsx.Writer(url, {"x": "int32"}) as out:
        out.write({"x": 1})
    age(url)
    before = keys(open_storage(url))
    assert not mdsx.clean(url, older_than=0).removed
    assert keys(open_storage(url)) == before


def test_a_run_that_died_without_a_dataset_is_removed(url: str) -> None:
    dead(url, 0, 1)
    would = mdsx.clean(url, dry_run=True)
    assert len(folders(url)) == 3
    assert not [key for key in keys(open_storage(url)) if key.endswith(("/dead", "/clock"))]
    done = mdsx.clean(url)
    assert done == would
    assert kinds(done) == ["attempt"] * 3 + ["record"]
    assert len({leftover.run for leftover in done.removed}) == 1
    assert keys(open_storage(url)) == set()
    assert sum(leftover.size for leftover in done.removed) > 0


def test_a_run_that_died_after_others_finished_is_removed(url: str) -> None:
    driver = begin(url)
    done = [write_part(driver.job, part, batches(part)) for part in range(2)]
    dead(url, 0, 1)
    driver.commit(done)
    age(url)
    mdsx.clean(url)
    assert folders(url) == {result.folder for result in done}
    assert mdsx.verify(url).ok
    assert keys(open_storage(url)) == {key for key in keys(open_storage(url)) if not key.startswith("_")}


def test_what_is_younger_stays(url: str) -> None:
    dead(url, 0)
    late = begin(url)
    write_part(late.job, 1, batches(1))
    late.abort()
    assert not mdsx.clean(url, older_than="3d").removed
    assert kinds(mdsx.clean(url, older_than="1d")) == ["attempt", "attempt", "record"]


def test_a_running_run_keeps_its_attempts_whatever_their_age(url: str) -> None:
    driver = begin(url)
    done = [write_part(driver.job, part, batches(part)) for part in range(2)]
    age(url, 30 * DAY)  # a long job
    driver.record.sign()
    cleaned = mdsx.clean(url, older_than=0)
    assert cleaned.running == (driver.job.run,)
    assert not cleaned.removed
    assert {leftover.kept for leftover in cleaned.kept} == {"its run is active"}
    driver.commit(done)
    assert numbers(url) == list(range(2 * SAMPLES))


def test_a_run_is_not_dead_within_an_hour(url: str) -> None:
    driver = begin(url)
    done = write_part(driver.job, 0, batches(0))
    age(url, 3000)
    assert not mdsx.clean(url, older_than=0).removed
    driver.commit([done])
    assert len(mdsx.Dataset(url)) == SAMPLES


def test_a_driver_that_wakes_up_after_a_clean_fails_and_publishes_nothing(url: str) -> None:
    driver = begin(url)
    done = [write_part(driver.job, part, batches(part)) for part in range(2)]
    age(url)
    mdsx.clean(url)
    with pytest.raises(mdsx.ChangedError, match=r"`mdsx clean` removed it as dead.*run the job again"):
        driver.commit(done)
    assert keys(open_storage(url)) == set()


def suspend(monkeypatch: pytest.MonkeyPatch, url: str, kind: type, name: str, *, call: int = 1) -> None:
    """Let two days pass, and a clean run, before that call of the method."""
    real, calls = getattr(kind, name), iter(range(1, 100))

    def suspended(*args: Any, **options: Any) -> object:
        if next(calls) == call:
            age(url)
            mdsx.clean(url)
        return real(*args, **options)

    monkeypatch.setattr(kind, name, suspended)


def replacing(url: str) -> Driver:
    """Begin to replace a dataset that a run wrote."""
    driver = begin(url)
    driver.commit([write_part(driver.job, 0, batches(5))])
    return begin(url, mode="replace")


def test_a_driver_suspended_just_before_the_index_takes_it_back(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    driver = begin(url)
    done = [write_part(driver.job, part, batches(part)) for part in range(2)]
    suspend(monkeypatch, url, LocalStorage, "create")
    with pytest.raises(mdsx.ChangedError, match=r"marked this run as dead|removed it as dead"):
        driver.commit(done)
    assert keys(driver.storage) == set()


def test_a_driver_suspended_just_after_the_index_keeps_it(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    driver = begin(url)
    done = [write_part(driver.job, part, batches(part)) for part in range(2)]
    suspend(monkeypatch, url, RunRecord, "state", call=2)
    driver.commit(done)
    assert numbers(url) == list(range(2 * SAMPLES))
    assert {attempt(key) for key in keys(driver.storage)} == {"", *(result.folder for result in done)}


@pytest.mark.parametrize(("kind", "name", "call"), [(LocalStorage, "replace", 1), (RunRecord, "state", 2)])
def test_a_suspended_driver_leaves_the_dataset_that_it_would_replace(
    url: str, kind: type, name: str, call: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = replacing(url)
    done = [write_part(driver.job, part, batches(part)) for part in range(2)]
    suspend(monkeypatch, url, kind, name, call=call)
    with pytest.raises(mdsx.ChangedError, match=r"marked this run as dead|removed it as dead"):
        driver.commit(done)
    monkeypatch.undo()
    assert numbers(url) == list(range(5 * SAMPLES, 6 * SAMPLES))
    assert mdsx.verify(url).ok
    age(url)
    mdsx.clean(url)
    assert len(folders(url)) == 1
    assert not [key for key in keys(driver.storage) if key.startswith("_")]


def killed_while_replacing(url: str, monkeypatch: pytest.MonkeyPatch, where: str) -> Driver:
    """Replace a dataset that has grown and has lengths, and die at the call of `where`."""
    with mdsx.Writer(url, COLUMNS, shard_size=500, lengths=["text"]) as out:
        for batch in batches(3):
            out.write_batch(batch)
    with mdsx.Writer(f"{url}/part-00000", COLUMNS, shard_size=500) as out:
        for batch in batches(4):
            out.write_batch(batch)
    mdsx.append(url, "part-00000")
    driver = begin(url, mode="replace")
    done = [write_part(driver.job, part, batches(part)) for part in range(2)]

    def killed(*args: object, **options: object) -> NoReturn:
        raise KeyboardInterrupt

    owner = {"state": RunRecord, "end": RunRecord, "leftovers": replaced, "_publish": Driver}[where]
    monkeypatch.setattr(owner, where, killed)
    with pytest.raises(KeyboardInterrupt):
        driver.commit(done)
    monkeypatch.undo()
    die(driver)
    age(url)
    return driver


@pytest.mark.parametrize("where", ["end", "leftovers"])
def test_a_clean_finishes_a_replacement_that_was_killed(url: str, where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    storage = killed_while_replacing(url, monkeypatch, where).storage
    assert any(filenames.parse_shard(key) and not attempt(key) for key in keys(storage))
    if where == "end":  # the driver might still take its index back
        assert [leftover.kind for leftover in mdsx.clean(url).kept] == ["replaced"]
        age(url)
    assert "replaced" in kinds(mdsx.clean(url))
    assert numbers(url) == list(range(2 * SAMPLES))
    assert {attempt(key) or key for key in keys(storage)} == {"index.json", *folders(url)}


def test_a_replacement_killed_before_its_index_leaves_the_old_dataset(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = killed_while_replacing(url, monkeypatch, "_publish").storage
    before = {key for key in keys(storage) if not filenames.run_of(key)}
    for _ in range(2):
        mdsx.clean(url)
        age(url)
    assert keys(storage) == before
    assert numbers(url) == list(range(3 * SAMPLES, 5 * SAMPLES))


def test_the_replaced_dataset_stays_while_the_new_one_lacks_a_shard(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    storage = killed_while_replacing(url, monkeypatch, "leftovers").storage
    lost = next(key for key in sorted(keys(storage)) if attempt(key) and filenames.parse_shard(key))
    storage.delete(lost)
    (kept,) = mdsx.clean(url).kept
    assert kept.kind == "replaced"
    assert lost in kept.kept
    assert "shard.00000.mdsx" in keys(storage)


def test_what_was_written_after_a_replacement_stays(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    storage = killed_while_replacing(url, monkeypatch, "leftovers").storage
    for key in keys(storage):
        if key.startswith("part-00000/"):
            storage.delete(key)
    with mdsx.Writer(f"{url}/part-00000", COLUMNS, shard_size=500) as out:  # to be appended
        for batch in batches(6):
            out.write_batch(batch)
    mdsx.clean(url)
    assert mdsx.verify(f"{url}/part-00000").ok
    assert "shard.00000.mdsx" not in keys(storage)


def test_a_dataset_whose_index_was_lost_stays(url: str) -> None:
    driver = begin(url)
    driver.commit([write_part(driver.job, part, batches(part)) for part in range(2)])
    index = Path(url, "index.json")
    index.unlink()
    dead(url, 7)
    kept = mdsx.clean(url).kept
    assert {leftover.kept for leftover in kept} == {"its dataset's index may have been lost: see `mdsx repair`"}
    mdsx.repair(url)
    assert numbers(url) == list(range(2 * SAMPLES))


def test_a_damaged_index_is_an_error_and_removes_nothing(url: str) -> None:
    driver = begin(url)
    driver.commit([write_part(driver.job, 0, batches(0))])
    Path(url, "index.json").write_bytes(b"{")
    age(url)
    before = keys(driver.storage)
    with pytest.raises(mdsx.CorruptError, match=r"index\.json"):
        mdsx.clean(url)
    assert keys(driver.storage) == before


def test_what_other_writers_left_stays(url: str) -> None:
    for place in (url, f"{url}/part-00003"):
        with suppress(RuntimeError), mdsx.Writer(place, COLUMNS, shard_size=500) as out:
            for batch in fails(0):
                out.write_batch(batch)
    others = Path(url, filenames.run_folder("0" * 16))
    others.mkdir()
    (others / "notes.txt").write_text("of the user")
    age(url)
    before = keys(open_storage(url))
    assert not mdsx.clean(url, older_than=0).removed
    assert keys(open_storage(url)) == before


def test_a_dataset_of_another_format_is_refused(tmp_path: Path) -> None:
    (tmp_path / "index.json").write_text('{"version":2,"shards":[]}')
    with pytest.raises(mdsx.UsageError, match="another format"):
        mdsx.clean(tmp_path)


def test_a_storage_that_keeps_no_times_is_refused(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    dead(url, 0)
    real = LocalStorage.list
    monkeypatch.setattr(
        LocalStorage, "list", lambda self, prefix="": (replace(entry, modified=0.0) for entry in real(self, prefix))
    )
    before = keys(open_storage(url))
    with pytest.raises(mdsx.TransportError, match="listing lacks the times of objects"):
        mdsx.clean(url)
    assert keys(open_storage(url)) == before


def test_unfinished_files_of_dead_writers_are_removed(url: str) -> None:
    dead(url, 0)
    folder = next(iter(folders(url)))
    old = Path(url, folder, ".shard.00007.mdsx.00.mdsx-tmp")
    young = Path(url, filenames.record_folder("0" * 16), ".alive.00.mdsx-tmp")
    foreign = Path(url, ".notes.00.mdsx-tmp")
    held = Path(url, ".index.json.00.mdsx-tmp")
    for path in (old, held, foreign):
        path.write_bytes(b"half")
    age(url)
    young.parent.mkdir(parents=True)
    young.write_bytes(b"half")
    with held.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # its writer lives
        assert "unfinished" in kinds(mdsx.clean(url))
    assert not old.exists()
    assert young.exists()
    assert held.exists()
    assert foreign.exists()


def test_a_driver_is_killed_while_attempts_of_two_runs_write(url: str) -> None:
    """Real processes: the clean comes while an attempt of the dead run, and one of a running run, still write."""
    context = multiprocessing.get_context("spawn")
    go, (ours, theirs) = context.Event(), context.Pipe()
    killed = context.Process(target=_drive_and_hang, args=(url, theirs))
    killed.start()
    job: WriteJob = ours.recv()
    running = begin(url)
    writers = [context.Process(target=_write_slowly, args=(each, theirs, go)) for each in (job, running.job)]
    for process in writers:
        process.start()
    for _ in writers:
        assert ours.recv() == "writing"
    killed.kill()
    killed.join()
    age(url)
    running.record.sign()
    cleaned = mdsx.clean(url)
    assert cleaned.running == (running.job.run,)
    assert {leftover.run for leftover in cleaned.removed} == {job.run}
    go.set()
    results = [ours.recv() for _ in writers]
    for process in writers:
        process.join()
    (done,) = [
        result
        for result in results
        if isinstance(result, Done) and filenames.run_of(result.folder + "/") == running.job.run
    ]
    running.commit([done])
    assert numbers(url) == list(range(SAMPLES))
    assert mdsx.verify(url).ok
    age(url)
    mdsx.clean(url)  # what the late attempt of the dead run has left since
    assert folders(url) == {done.folder}


def _drive_and_hang(url: str, pipe: Any) -> None:
    pipe.send(begin(url).job)
    time.sleep(600)


def _write_slowly(job: WriteJob, pipe: Any, go: Any) -> None:
    def watched() -> Iterator[dict[str, Any]]:
        for number, batch in enumerate(batches(0)):
            if number == 2:
                pipe.send("writing")
                go.wait()
            yield batch

    try:
        pipe.send(write_part(job, 0, watched()))
    except mdsx.MdsxError as error:  # its files were removed
        pipe.send(str(error))


def test_a_clean_works_in_object_storage(s3_url: str) -> None:
    """Nothing there can be made older, so this one looks at a dry run for files of any age."""
    url = f"{s3_url}/out"
    driver = begin(url)
    done = write_part(driver.job, 0, batches(0))
    cleaned = mdsx.clean(url, older_than=0)
    assert (cleaned.running, cleaned.removed) == ((driver.job.run,), ())
    late = write_part(driver.job, 1, batches(1))
    driver.commit([done])
    again = write_part(driver.job, 0, batches(0))  # it comes late
    assert late.folder not in {attempt(key) for key in keys(driver.storage)}
    time.sleep(1.1)  # the server's clock has seconds
    (removed,) = mdsx.clean(url, older_than=0).removed
    assert (removed.name, removed.run) == (again.folder, driver.job.run)
    assert numbers(url) == list(range(SAMPLES))
    assert {attempt(key) or key for key in keys(driver.storage)} == {"index.json", done.folder}


def test_unfinished_uploads_are_aborted_by_their_age(s3_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record, "LEAST", 2.0)  # instead of an hour
    url, (bucket, prefix) = f"{s3_url}/out", f"{s3_url}/out".removeprefix("s3://").split("/", 1)
    driver = begin(url)
    done = write_part(driver.job, 0, batches(0))
    driver.commit([done])
    client = boto3.client("s3")

    def shard(name: str) -> str:
        return f"{filenames.run_part(driver.job.run, 1, name * 16)}/shard.00000.mdsx"

    def upload(name: str) -> str:
        key = f"{prefix}/{shard(name)}"
        client.create_multipart_upload(Bucket=bucket, Key=key)
        return key

    upload("a")
    foreign = f"{prefix}/notes.txt"
    client.create_multipart_upload(Bucket=bucket, Key=foreign)
    time.sleep(3.1)  # the server's clock has seconds
    young = upload("b")
    (removed,) = mdsx.clean(url, older_than=0).removed
    assert (removed.kind, removed.name) == (
        "unfinished",
        f"{filenames.run_part(driver.job.run, 1, 'a' * 16)}/shard.00000.mdsx",
    )
    left = client.list_multipart_uploads(Bucket=bucket).get("Uploads", ())
    assert {each["Key"] for each in left} == {young, foreign}
    assert numbers(url) == list(range(SAMPLES))


@pytest.mark.parametrize("beside", [None, 5, [1], [[[], 1]], {"index.json": 1}])
def test_a_strange_note_of_what_a_run_replaces_is_an_error(tmp_path: Path, beside: object) -> None:
    with mdsx.Writer(tmp_path, {"x": "int64"}) as out:
        out.write({"x": 1})
    note = {"format": "mdsx-replaced", "version": 1, "index": (tmp_path / "index.json").read_text(), "beside": beside}
    path = tmp_path / filenames.run_sign("a" * 16, "replaced")
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(note))
    with pytest.raises(mdsx.FormatError, match=r"replaced.*not a valid note of a replaced dataset"):
        mdsx.clean(tmp_path)


def test_a_file_of_others_in_an_attempts_folder_stays(tmp_path: Path) -> None:
    folder = tmp_path / filenames.run_part("0" * 16, 0, "1" * 16)
    with mdsx.Writer(folder, {"x": "int64"}, resume=True) as out:
        out.write({"x": 1})
    (folder / "index.json").unlink()
    (folder / "notes.txt").write_text("mine")
    age(str(tmp_path))
    mdsx.clean(tmp_path)
    assert [path.name for path in folder.iterdir()] == ["notes.txt"]
