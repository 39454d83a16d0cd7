"""`overwrite=True`: the dataset is the old one until the new one is complete, and nothing of others is touched."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pytest

import mdsx
from mdsx.format import filenames
from mdsx.storage import open_storage
from mdsx.writer import writer
from tests.conftest import Often
from tests.writer.jobs import DieAt, DieBefore, contents, killed, start_job

COLUMNS = {"id": "int64", "tokens": "uint16[*]"}


def write(url: Path | str, first: int, stop: int, **options: Any) -> None:
    with mdsx.Writer(url, COLUMNS, shard_size=2000, **options) as out:
        for number in range(first, stop):
            out.write({"id": number, "tokens": np.zeros(number % 30, np.uint16)})


def ids(url: Path | str, **options: Any) -> list[int]:
    return [int(sample["id"]) for sample in mdsx.Dataset(url, **options)]


OLD, NEW = list(range(200)), list(range(1000, 1100))
overwrite = partial(write, first=1000, stop=1100, overwrite=True)


@pytest.fixture(params=["plain", "with all", "overwritten"])
def dataset(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """200 samples: in the folder itself; in parts, with lengths and snapshots; or written over another one."""
    root = tmp_path / "dataset"
    if request.param == "plain":
        write(root, 0, 200)
    elif request.param == "overwritten":
        write(root, 0, 30)
        write(root, 0, 200, overwrite=True, lengths=["tokens"])
    else:
        write(root, 0, 150, lengths=["tokens"])
        write(root / "part-00000", 150, 200, lengths=["tokens"])
        mdsx.append(root, "part-00000")
    return root


def test_the_new_dataset_replaces_the_old_one(dataset: Path) -> None:
    overwrite(dataset, lengths=["tokens"], metadata={"license": "CC0"})
    assert ids(dataset) == NEW
    assert mdsx.Dataset(dataset).metadata == {"license": "CC0"}
    (part,) = dataset.glob("run-*/part-*")
    assert {path.name for path in dataset.iterdir()} == {"_lengths", "index.json", part.parent.name}
    data = (dataset / "_lengths" / "tokens.u32").read_bytes()
    mdsx.write_lengths(dataset, "tokens")
    assert (dataset / "_lengths" / "tokens.u32").read_bytes() == data
    write(dataset / "part-00001", 1100, 1110)
    mdsx.append(dataset, "part-00001")
    assert ids(dataset) == list(range(1000, 1110))
    assert part.is_dir()


def test_readers_of_mapped_shards_continue(dataset: Path) -> None:
    old = mdsx.Dataset(dataset)
    assert [int(old[number]["id"]) for number in range(200)] == OLD
    overwrite(dataset)
    assert [int(old[number]["id"]) for number in range(200)] == OLD


def test_nothing_there_is_nothing_to_replace(tmp_path: Path) -> None:
    overwrite(tmp_path / "new")
    assert ids(tmp_path / "new") == NEW
    assert (tmp_path / "new" / "shard.00000.mdsx").exists()


def fail(url: Path, **options: Any) -> None:
    with mdsx.Writer(url, COLUMNS, shard_size=500, **options) as out:
        for number in range(300):
            out.write({"id": number, "tokens": np.zeros(9, np.uint16)})
        raise RuntimeError


def test_a_writer_that_fails_leaves_the_old_dataset(dataset: Path) -> None:
    before = contents(dataset)
    with pytest.raises(RuntimeError):
        fail(dataset, overwrite=True)
    assert contents(dataset) == before


def test_a_writer_that_cannot_begin_leaves_the_old_dataset(dataset: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> NoReturn:
        raise mdsx.TransportError("no answer")

    before = contents(dataset)
    monkeypatch.setattr(writer, "begin", refuse)
    with pytest.raises(mdsx.TransportError, match="no answer"):
        overwrite(dataset)
    assert contents(dataset) == before


OTHERS: dict[str, tuple[str, str]] = {
    "a file": ("notes.txt", "does not belong"),
    "a hidden file": (".DS_Store", "does not belong"),
    "a shard": ("shard.00999.mdsx", "does not belong"),
    "a part": ("part-00007/index.json", "does not belong"),
    "a shard of a part": ("part-00000/shard.00999.mdsx", "does not belong"),
    "an attempt": ("run-0123456789abcdef/part-00000-0123456789abcdef/shard.00000.mdsx", "does not belong"),
    "an attempt of an earlier version": ("part-00000-0123456789abcdef/shard.00000.mdsx", "does not belong"),
    "a run": ("run-0123456789abcdef/_run/alive", "unfinished run of Ray or Spark"),
    "a writer": ("_mdsx/writer.json", "an unfinished dataset or conversion"),
    "a conversion": ("_convert/plan.json", "an unfinished dataset or conversion"),
    "an index of tars": ("_mdsx-tars.json", "does not belong|another format"),
    "lengths like ours": ("_lengths/tokens.csv", "does not belong"),
}


@pytest.mark.parametrize(("name", "message"), OTHERS.values(), ids=OTHERS)
def test_what_the_dataset_does_not_name_is_refused(dataset: Path, name: str, message: str) -> None:
    (dataset / name).parent.mkdir(parents=True, exist_ok=True)
    (dataset / name).write_text("{}")
    before = contents(dataset)
    with pytest.raises(mdsx.UsageError, match=message):
        overwrite(dataset)
    assert contents(dataset) == before


def test_only_a_finished_dataset_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "index.json").write_text("{")
    with pytest.raises(mdsx.CorruptError):
        overwrite(tmp_path)
    (tmp_path / "index.json").unlink()
    with pytest.raises(RuntimeError):
        fail(tmp_path)
    before = contents(tmp_path)
    with pytest.raises(mdsx.UsageError, match="resume=True"):
        overwrite(tmp_path)
    assert contents(tmp_path) == before


def test_a_resume_does_not_overwrite(dataset: Path) -> None:
    with pytest.raises(mdsx.UsageError, match="exclude each other"):
        write(dataset, 0, 1, overwrite=True, resume=True)
    with pytest.raises(mdsx.UsageError, match="overwrite=True"):
        write(dataset, 0, 1)


def test_of_two_at_once_one_counts(dataset: Path) -> None:
    def late() -> None:
        with mdsx.Writer(dataset, COLUMNS, overwrite=True) as out:
            out.write({"id": 1, "tokens": np.zeros(1, np.uint16)})
            overwrite(dataset)

    with pytest.raises(mdsx.MdsxError):
        late()
    assert ids(dataset) == NEW
    assert len(list(dataset.iterdir())) == 2


def test_an_append_meanwhile_is_not_lost(dataset: Path) -> None:
    write(dataset / "part-00005", 200, 210)
    shutil.move(dataset / "part-00005", dataset.parent / "aside")

    def late() -> None:
        with mdsx.Writer(dataset, COLUMNS, overwrite=True) as out:
            out.write({"id": 1, "tokens": np.zeros(1, np.uint16)})
            shutil.move(dataset.parent / "aside", dataset / "part-00005")
            mdsx.append(dataset, "part-00005")

    with pytest.raises(mdsx.ChangedError):
        late()
    assert ids(dataset) == list(range(210))


def check_killed(dataset: Path, work: Callable[[], object], changes: int) -> bool:
    """Kill `work` before change number `changes`; assert that the dataset is the old or the new one, and that the same
    can be done again. Return whether it was killed."""
    died = killed(start_job(work, hook=DieAt(changes)))
    found = ids(dataset)
    assert found in (OLD, NEW)
    if not died:
        assert found == NEW
    write(dataset, 2000, 2010, overwrite=True)
    assert ids(dataset) == list(range(2000, 2010))
    names = {path.relative_to(dataset).parts[0] for path in dataset.rglob("*") if path.is_file()}
    assert len(names) == 2
    return died


def test_a_kill_leaves_the_old_dataset_or_the_new_one(dataset: Path, often: Often) -> None:
    rng, copy = random.Random(27), dataset.parent / "copy"
    for _ in range(often(8, 120)):
        shutil.copytree(dataset, copy)
        check_killed(copy, partial(overwrite, copy, lengths=["tokens"]), rng.randrange(260))
        shutil.rmtree(copy)


def test_a_repair_does_not_mix_the_old_dataset_into_the_new_one(tmp_path: Path) -> None:
    """The writer was killed when it removed the old dataset; then the index was lost."""
    write(tmp_path, 0, 150)
    write(tmp_path / "part-00001", 150, 200)
    mdsx.append(tmp_path, "part-00001")
    assert killed(start_job(partial(overwrite, tmp_path), hook=DieBefore("shard.00000.mdsx", "unlink")))
    assert ids(tmp_path) == NEW
    index = (tmp_path / "index.json").read_bytes()
    (tmp_path / "index.json").unlink()
    before = contents(tmp_path)
    with pytest.raises(mdsx.UsageError, match=r"that a run replaced may still be here.*copy the index back.*/replaced"):
        mdsx.repair(tmp_path, drop_damaged=True)
    assert contents(tmp_path) == before
    (tmp_path / "index.json").write_bytes(index)
    assert not mdsx.repair(tmp_path).needed
    assert ids(tmp_path) == NEW


def test_a_clean_removes_what_a_killed_writer_left(dataset: Path) -> None:
    before = contents(dataset)
    assert killed(start_job(partial(overwrite, dataset), hook=DieAt(60)))
    assert mdsx.clean(dataset).running
    for path in dataset.rglob("*"):
        if str(path.relative_to(dataset)) not in before:
            os.utime(path, (0, path.stat().st_mtime - 7 * 86400))
    mdsx.clean(dataset)
    assert {name for name, data in contents(dataset).items() if data is not None} <= before.keys()


def test_an_object_store_overwrites_too(s3_url: str) -> None:
    write(s3_url, 0, 200, lengths=["tokens"])
    overwrite(s3_url)
    assert ids(s3_url) == NEW
    keys = {entry.key.partition("/")[0] for entry in open_storage(s3_url).list()}
    assert len(keys) == 2


def test_the_same_samples_again_keep_their_lengths(s3_url: str) -> None:
    """The new file has the bytes of the old one, and so its ETag."""
    for again in (False, True):
        write(s3_url, 0, 200, lengths=["tokens"], overwrite=again)
        storage = open_storage(s3_url)
        assert [entry.key for entry in storage.list("_lengths/")] == ["_lengths/tokens.u32"]
    assert ids(s3_url) == OLD


def test_a_clean_that_asks_for_the_time_refuses_no_overwriting(dataset: Path) -> None:
    open_storage(dataset).put(filenames.run_sign("0123456789abcdef", "clock"), b"")
    overwrite(dataset)
    assert ids(dataset) == NEW
