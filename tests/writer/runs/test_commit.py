"""A distributed write is exactly once: attempts that fail, are repeated or come late leave no trace in the dataset."""

from __future__ import annotations

import gc
import pickle
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest

import mdsx
from mdsx.datasets import excerpt_of
from mdsx.format import Index, filenames
from mdsx.storage import Entry, Storage
from mdsx.writer import parts, write_part
from mdsx.writer.runs import commit
from mdsx.writer.runs.commit import Driver, aborting
from mdsx.writer.runs.job import Done, WriteJob
from mdsx.writer.runs.record import RunRecord
from tests.forks import forked

COLUMNS = {"number": "int64", "text": "str"}
SAMPLES = 40  # of a part


def batches(part: int, samples: int = SAMPLES) -> Iterator[dict[str, Any]]:
    for first in range(part * SAMPLES, part * SAMPLES + samples, 10):
        numbers = list(range(first, first + 10))
        yield {"number": numbers, "text": [f"sample {number}" for number in numbers]}


def fails(part: int) -> Iterator[dict[str, Any]]:
    yield from batches(part, 20)
    raise RuntimeError("the node is lost")


def begin(url: str | Path, **options: Any) -> Driver:
    return Driver.begin(str(url), COLUMNS, shard_size=500, **options)


def numbers(url: str | Path, **options: Any) -> list[int]:
    return [sample["number"] for sample in mdsx.Dataset(url, **options)]


def keys(storage: Storage) -> set[str]:
    return {entry.key for entry in storage.list()}


@pytest.fixture(params=["local", "s3"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(tmp_path / "out") if request.param == "local" else f"{request.getfixturevalue('s3_url')}/out"


def test_the_results_make_the_dataset_in_the_order_of_the_parts(url: str) -> None:
    driver = begin(url, metadata={"made": "here"})
    done = [write_part(driver.job, part, batches(part)) for part in (2, 0, 1)]
    assert not list(driver.storage.list(filenames.INDEX))  # no half-written dataset is visible
    written = driver.commit(done)
    assert numbers(url) == list(range(3 * SAMPLES))
    assert written == commit.Written(
        driver.storage.url, COLUMNS, 3 * SAMPLES, written.shards, written.bytes, mdsx.Dataset(url).fingerprint
    )
    assert written.bytes == sum(entry.size for entry in driver.storage.list() if filenames.parse_shard(entry.key))
    assert mdsx.Dataset(url).metadata == {"made": "here"}
    assert mdsx.verify(url).ok
    names = {filenames.split_part(key)[0] or key for key in keys(driver.storage)}
    assert names == {"index.json", *(result.folder for result in done)}  # not the record of the run


def test_shards_and_fingerprint_are_equal_from_run_to_run(tmp_path: Path) -> None:
    found = []
    for name in "ab":
        driver = begin(tmp_path / name)
        found.append(driver.commit([write_part(driver.job, part, batches(part)) for part in range(3)]))
    assert found[0].fingerprint == found[1].fingerprint
    shards = [sorted(path.read_bytes() for path in (tmp_path / name).rglob("*.mdsx")) for name in "ab"]
    assert shards[0] == shards[1]


def test_attempts_without_a_result_do_not_count_and_are_removed(url: str) -> None:
    driver = begin(url)
    with pytest.raises(RuntimeError):
        write_part(driver.job, 0, fails(0))
    write_part(driver.job, 1, batches(1))  # its result is lost
    done = [write_part(driver.job, part, batches(part)) for part in range(3)]
    driver.commit(done)
    assert numbers(url) == list(range(3 * SAMPLES))
    assert {folder for key in keys(driver.storage) if (folder := filenames.split_part(key)[0])} == {
        result.folder for result in done
    }


def test_parts_without_samples_leave_nothing(url: str) -> None:
    driver = begin(url)
    empty: dict[str, list[Any]] = {}
    done = [
        write_part(driver.job, 0, iter([])),
        write_part(driver.job, 1, batches(1)),
        write_part(driver.job, 2, iter([empty])),
    ]
    assert driver.commit(done).samples == SAMPLES
    assert numbers(url) == list(range(SAMPLES, 2 * SAMPLES))
    driver = begin(f"{url}-empty")
    assert driver.commit([Done(0, "", 0, "")]).samples == 0
    assert len(mdsx.Dataset(f"{url}-empty")) == 0


def test_two_results_of_a_part_are_refused(tmp_path: Path) -> None:
    driver = begin(tmp_path)
    done = [write_part(driver.job, 0, batches(0)) for _ in range(2)]
    with pytest.raises(mdsx.UsageError, match="two results for the same part"):
        driver.commit(done)
    driver.abort()
    assert keys(driver.storage) == set()


def test_of_two_drivers_one_succeeds_and_the_other_leaves_nothing(url: str) -> None:
    first, second = begin(url), begin(url)
    done = [[write_part(driver.job, part, batches(part)) for part in range(2)] for driver in (first, second)]
    first.commit(done[0])
    with pytest.raises(mdsx.ChangedError, match=r"another run has finished a dataset"):
        second.commit(done[1])
    assert numbers(url) == list(range(2 * SAMPLES))
    folders = {filenames.split_part(key)[0] for key in keys(first.storage)} - {""}
    assert folders == {result.folder for result in done[0]}
    with pytest.raises(mdsx.UsageError, match="there is a dataset already"):
        begin(url)


def test_a_plain_writer_does_not_replace_the_dataset_of_a_run_that_committed_meanwhile(url: str) -> None:
    driver, out = begin(url), mdsx.Writer(url, COLUMNS)
    done = [write_part(driver.job, part, batches(part)) for part in range(2)]
    with pytest.raises(mdsx.ChangedError, match="another program has written a dataset here meanwhile"), out:  # noqa: PT012
        out.write({"number": -1, "text": "x"})
        driver.commit(done)
    assert numbers(url) == list(range(2 * SAMPLES))
    assert mdsx.verify(url).ok


def test_a_driver_removes_nothing_of_another_one_at_work(url: str) -> None:
    first, second = begin(url), begin(url)
    theirs = write_part(second.job, 0, batches(0))
    with pytest.raises(RuntimeError), aborting(first):
        write_part(first.job, 0, fails(0))
    assert {filenames.split_part(key)[0] for key in keys(first.storage)} - {""} == {theirs.folder}
    second.commit([theirs])
    assert numbers(url) == list(range(SAMPLES))


def test_replacing_a_dataset_is_one_step_and_removes_the_old_one(url: str) -> None:
    with mdsx.Writer(url, {"other": "int32"}, lengths=[]) as out:
        out.write({"other": 1})
    driver = begin(url, mode="replace")
    late = begin(url, mode="replace")
    done = [write_part(driver.job, part, batches(part)) for part in range(2)]
    assert mdsx.Dataset(url)[0] == {"other": 1}  # until the commit
    driver.commit(done)
    assert numbers(url) == list(range(2 * SAMPLES))
    assert not [key for key in keys(driver.storage) if key.startswith("shard.")]
    with pytest.raises(mdsx.ChangedError, match="another run"):
        late.commit([write_part(late.job, 0, batches(0))])
    again = begin(url, mode="replace")
    again.commit([write_part(again.job, 0, batches(7))])
    assert numbers(url) == list(range(7 * SAMPLES, 8 * SAMPLES))
    assert {filenames.part_number(key) for key in keys(driver.storage)} == {None, 0}


@pytest.mark.parametrize("harm", ["index", "shard", "removed"])
def test_an_attempt_that_changed_before_the_commit_is_noticed(tmp_path: Path, harm: str) -> None:
    driver = begin(tmp_path)
    done = write_part(driver.job, 0, batches(0))
    name = f"{done.folder}/index.json" if harm == "index" else f"{done.folder}/shard.00001.mdsx"
    if harm == "removed":
        driver.storage.delete(name)
    else:
        driver.storage.put(name, driver.storage.get(name).data[:-1])
    with pytest.raises(mdsx.ChangedError, match=name):
        driver.commit([done])
    assert keys(driver.storage) == set()


def test_a_commit_whose_outcome_is_unknown_removes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    driver = begin(tmp_path)
    done = write_part(driver.job, 0, batches(0))

    def lost(self: Storage, key: str, data: bytes) -> None:
        self.put(key, data)
        raise mdsx.TransportError("the connection broke")

    monkeypatch.setattr(type(driver.storage), "create", lost)
    with pytest.raises(mdsx.TransportError):
        driver.commit([done])
    assert numbers(tmp_path) == list(range(SAMPLES))


def test_an_abort_removes_nothing_that_the_index_there_names(tmp_path: Path) -> None:
    driver = begin(tmp_path)
    again = pickle.loads(pickle.dumps(driver))
    done = write_part(driver.job, 0, batches(0))
    driver.commit([done])
    again.abort()  # its caller has not learned that the commit succeeded
    assert numbers(tmp_path) == list(range(SAMPLES))


@pytest.mark.parametrize("mode", ["create", "replace"])
def test_another_process_may_commit_what_a_driver_began(url: str, mode: str) -> None:
    if mode == "replace":
        with mdsx.Writer(url, {"other": "int32"}) as out:
            out.write({"other": 1})
    driver = pickle.loads(pickle.dumps(begin(url, mode=mode)))
    late = pickle.loads(pickle.dumps(driver))
    done = write_part(driver.job, 0, batches(0))
    driver.commit([done])
    assert numbers(url) == list(range(SAMPLES))
    with pytest.raises(mdsx.ChangedError, match="the run has ended: it was committed"):
        late.commit([write_part(driver.job, 0, batches(1))])
    assert {filenames.split_part(key)[0] or key for key in keys(driver.storage)} == {"index.json", done.folder}


def test_an_attempt_renews_its_mark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    driver = begin(tmp_path)
    monkeypatch.setattr(parts, "RENEWED", -1.0)
    found = []

    def watched() -> Iterator[dict[str, Any]]:
        for batch in batches(0):
            for mark in tmp_path.glob("run-*/part-*/_mdsx/alive"):
                found.append(mark.exists())
                mark.unlink()
            yield batch

    write_part(driver.job, 0, watched())
    assert found == [True] * 3  # at the beginning, and after each batch but the last one


def test_what_is_at_the_place_is_refused_before_any_task(tmp_path: Path) -> None:
    with pytest.raises(mdsx.UsageError, match="type"):
        Driver.begin(str(tmp_path / "a"), {"x": "wrong"})
    with pytest.raises(mdsx.UsageError, match="mode"):
        begin(tmp_path / "a", mode="append")
    writer = mdsx.Writer(tmp_path / "b", COLUMNS)
    with pytest.raises(RuntimeError), writer:
        raise RuntimeError
    with pytest.raises(mdsx.UsageError, match="an unfinished dataset or conversion"):
        begin(tmp_path / "b")
    assert not (tmp_path / "a").exists()


def test_a_value_that_does_not_fit_names_partition_and_column(tmp_path: Path) -> None:
    started: WriteJob = begin(tmp_path).job
    good, bad = {"number": [1, 2], "text": ["x", "y"]}, {"number": ["no number"], "text": ["x"]}
    with pytest.raises(mdsx.SampleError, match=r"^partition 7, after its first 2 samples: .*column 'number'"):
        write_part(started, 7, [good, bad])


def test_a_rebuild_without_an_index_refuses_several_attempts_and_names_them(tmp_path: Path) -> None:
    driver = begin(tmp_path)
    done = [write_part(driver.job, part, batches(part)) for part in range(2)]
    index = driver.commit(done)
    (tmp_path / "index.json").unlink()
    mdsx.repair(tmp_path)
    assert mdsx.Dataset(tmp_path).fingerprint == index.fingerprint
    (tmp_path / "index.json").unlink()
    mdsx.merge(tmp_path, metadata={})
    assert numbers(tmp_path) == list(range(2 * SAMPLES))
    (tmp_path / "index.json").unlink()
    other = write_part(driver.job, 1, batches(1))
    for rebuild in (mdsx.repair, mdsx.merge):
        with pytest.raises(mdsx.UsageError, match=other.folder) as raised:
            rebuild(tmp_path)
        assert done[1].folder in str(raised.value)


@pytest.mark.parametrize("rebuild", [mdsx.repair, mdsx.merge])
def test_a_rebuild_publishes_no_part_of_a_run_that_has_not_ended(
    rebuild: Callable[[Path], object], tmp_path: Path
) -> None:
    driver = begin(tmp_path)
    done = [write_part(driver.job, 0, batches(0))]
    with pytest.raises(mdsx.UsageError, match=f"{done[0].folder}: a run that has not ended .*remove run-.*/_run/alive"):
        rebuild(tmp_path)
    done.append(write_part(driver.job, 1, batches(1)))
    driver.commit(done)
    assert numbers(tmp_path) == list(range(2 * SAMPLES))


@pytest.mark.parametrize("rebuild", [mdsx.repair, mdsx.merge])
def test_a_rebuild_mixes_no_parts_of_several_runs(rebuild: Callable[[Path], object], tmp_path: Path) -> None:
    folders = [filenames.run_part(run * 16, part, "0" * 16) for part, run in enumerate("ab")]
    for part, folder in enumerate(folders):
        with mdsx.Writer(tmp_path / folder, COLUMNS) as out:
            for batch in batches(part):
                out.write_batch(batch)
    with pytest.raises(mdsx.UsageError, match=f"several runs.*{', '.join(folders)}.*; run the job again"):
        rebuild(tmp_path)


def test_an_interrupt_after_the_index_is_written_removes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = begin(tmp_path)
    done = write_part(driver.job, 0, batches(0))

    def interrupted(self: RunRecord) -> NoReturn:
        raise KeyboardInterrupt

    def put_and_interrupt(self: Storage, key: str, data: bytes) -> None:
        self.put(key, data)
        monkeypatch.setattr(RunRecord, "state", interrupted)

    monkeypatch.setattr(type(driver.storage), "create", put_and_interrupt)
    with pytest.raises(KeyboardInterrupt), aborting(driver):
        driver.commit([done])
    assert numbers(tmp_path) == list(range(SAMPLES))


def test_a_forked_child_neither_aborts_nor_commits_its_parents_run(tmp_path: Path) -> None:
    driver = begin(tmp_path)
    done = write_part(driver.job, 0, batches(0))
    forked(lambda: driver.abort())
    with pytest.raises(mdsx.UsageError, match="belongs to another process"):
        forked(lambda: driver.commit([done]))
    driver.commit([done])
    assert numbers(tmp_path) == list(range(SAMPLES))


def test_a_driver_that_is_dropped_gives_no_more_signs_of_life(tmp_path: Path) -> None:
    driver = begin(tmp_path)
    name = f"mdsx-run-{driver.job.run}"
    (thread,) = [thread for thread in threading.enumerate() if thread.name == name]
    del driver
    gc.collect()
    thread.join(10)
    assert not thread.is_alive()


def test_a_listing_that_comes_late_is_no_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    driver = begin(tmp_path)
    done = write_part(driver.job, 0, batches(0))
    real = type(driver.storage).list

    def late(self: Storage, prefix: str = "") -> Iterator[Entry]:
        return (entry for entry in real(self, prefix) if not entry.key.endswith("shard.00001.mdsx"))

    monkeypatch.setattr(type(driver.storage), "list", late)
    driver.commit([done])
    monkeypatch.undo()
    assert numbers(tmp_path) == list(range(SAMPLES))


def test_parts_that_no_index_names_are_refused(tmp_path: Path) -> None:
    with mdsx.Writer(tmp_path / "part-00000", COLUMNS) as out:
        out.write({"number": 1, "text": "x"})
    with pytest.raises(mdsx.UsageError, match=r"part-00000.*`mdsx merge`"):
        begin(tmp_path)


def test_a_replacement_removes_all_of_a_dataset_that_was_repaired(tmp_path: Path) -> None:
    with mdsx.Writer(tmp_path, COLUMNS, shard_size=500) as out:
        for batch in batches(0):
            out.write_batch(batch)
    shard = tmp_path / "shard.00000.mdsx"
    shard.write_bytes(shard.read_bytes()[:-1] + b"\0")
    mdsx.repair(tmp_path, drop_damaged=True)
    driver = begin(tmp_path, mode="replace")
    done = write_part(driver.job, 0, batches(1))
    driver.commit([done])
    assert {filenames.split_part(key)[0] or key for key in keys(driver.storage)} == {"index.json", done.folder}


def test_lengths_of_all_parts_are_stored_with_the_dataset(url: str) -> None:
    driver = begin(url, lengths=["text"])
    done = [write_part(driver.job, part, batches(part)) for part in (0, 1)]
    driver.commit([*done, Done(2, "", 0, "")])
    sizes = [len(sample["text"]) for sample in mdsx.Dataset(url)]
    dataset = mdsx.Dataset(url)
    index = excerpt_of(dataset).shards.index
    assert isinstance(index, Index)
    assert index.lengths == {"text": sum(sizes)}
    before = keys(driver.storage)
    assert filenames.lengths("text") in before
    assert mdsx.write_lengths(url, "text").sum == sum(sizes)
    with pytest.raises(mdsx.UsageError, match="column 'tokens': there is no such column"):
        begin(f"{url}-2", lengths=["tokens"])
    with pytest.raises(mdsx.UsageError, match="a list of column names"):
        begin(f"{url}-2", lengths="text")


def test_a_dataset_is_complete_without_its_files_of_lengths(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> NoReturn:
        raise mdsx.TransportError("no answer")

    driver = begin(url, lengths=["text"])
    done = [write_part(driver.job, part, batches(part)) for part in range(2)]
    write_part(driver.job, 0, batches(0))  # its result is lost
    monkeypatch.setattr(commit, "join_lengths", refuse)
    with pytest.warns(UserWarning, match=r"the lengths were not stored: no answer.*`mdsx lengths`"):
        driver.commit(done)
    assert numbers(url) == list(range(2 * SAMPLES))
    found = {filenames.split_part(key)[0] or key for key in keys(driver.storage)}
    assert found == {"index.json", *(result.folder for result in done)}
