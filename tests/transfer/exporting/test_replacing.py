"""`overwrite=True`: the old export is whole until the new one is complete, and nothing of others is touched."""

from __future__ import annotations

import json
import random
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import mdsx
from mdsx.storage import Storage, open_storage
from mdsx.transfer.exporting import replacing
from mdsx.transfer.exporting.record import ExportRecord, decode_record, names_in
from tests.conftest import Often
from tests.writer.jobs import DieAt, contents, killed, start_job


def write(url: Path, first: int, stop: int) -> None:
    with mdsx.Writer(url, {"id": "int64"}) as out:
        for number in range(first, stop):
            out.write({"id": number})


@pytest.fixture
def datasets(tmp_path: Path) -> tuple[Path, Path]:
    write(tmp_path / "old", 0, 25)
    write(tmp_path / "new", 100, 118)
    return tmp_path / "old", tmp_path / "new"


def exported(dataset: Path, out: Path | str, **options: Any) -> mdsx.Export:
    return mdsx.export("jsonl", dataset, out, file_samples=5, **options)


def ids(out: Path) -> list[int]:
    """Return the numbers in the files that the record names."""
    record = json.loads((out / "_mdsx-export.json").read_text())
    assert record["finished"]
    return [json.loads(line)["id"] for name in record["files"] for line in (out / name).read_text().splitlines()]


def test_the_new_export_replaces_the_old_one(datasets: tuple[Path, Path], tmp_path: Path) -> None:
    old, new, out = *datasets, tmp_path / "out"
    exported(old, out, overwrite=True)  # nothing to replace
    with pytest.raises(mdsx.UsageError, match="overwrite=True"):
        exported(new, out)
    found = exported(new, out, overwrite=True)
    assert list(found.files) == [f"data-{number:05d}.jsonl" for number in range(5, 9)]
    assert {path.name for path in out.iterdir()} == {"_mdsx-export.json", *found.files}
    assert ids(out) == list(range(100, 118))
    assert exported(new, out).already
    exported(old, out, overwrite=True)
    assert ids(out) == list(range(25))
    assert len(list(out.iterdir())) == 6


@pytest.mark.parametrize("name", ["notes.txt", "data-00009.jsonl", "data-00000.jsonl.bak", "sub/data-00000.jsonl"])
def test_what_the_record_does_not_name_is_refused(datasets: tuple[Path, Path], tmp_path: Path, name: str) -> None:
    old, new, out = *datasets, tmp_path / "out"
    exported(old, out)
    (out / name).parent.mkdir(exist_ok=True)
    (out / name).write_text("mine")
    before = contents(out)
    with pytest.raises(mdsx.UsageError, match="not part of the export"):
        exported(new, out, overwrite=True)
    (out / "_mdsx-export.json").write_text("{")
    with pytest.raises(mdsx.CorruptError):
        exported(new, out, overwrite=True)
    (out / "_mdsx-export.json").unlink()
    with pytest.raises(mdsx.UsageError, match="not empty"):
        exported(new, out, overwrite=True)
    assert contents(out).items() == {key: data for key, data in before.items() if key != "_mdsx-export.json"}.items()


@pytest.mark.parametrize("damaged", [b'["data-00009.jsonl"', b'["data-00009.jsonl\xff"]'])
def test_a_damaged_list_of_files_to_remove_is_an_error(
    datasets: tuple[Path, Path], tmp_path: Path, damaged: bytes
) -> None:
    old, new, out = *datasets, tmp_path / "out"
    exported(old, out)
    (out / "_mdsx-export.next.json").write_bytes(damaged)
    before = contents(out)
    with pytest.raises(mdsx.CorruptError, match=r"_mdsx-export\.next\.json: not a list of an export's files"):
        exported(new, out, overwrite=True)
    assert contents(out) == before


def test_an_export_that_fails_leaves_the_old_one(datasets: tuple[Path, Path], tmp_path: Path) -> None:
    old, new, out = *datasets, tmp_path / "out"
    exported(old, out)
    before = contents(out)
    shard = next(new.glob("shard*"))
    shard.write_bytes(shard.read_bytes()[:-1] + b"x")
    with pytest.raises(mdsx.CorruptError):
        exported(new, out, overwrite=True)
    assert contents(out) == before


def test_a_kill_leaves_the_old_export_or_the_new_one(datasets: tuple[Path, Path], tmp_path: Path, often: Often) -> None:
    (old, new), rng = datasets, random.Random(27)
    for number in range(often(8, 80)):
        out = tmp_path / str(number)
        exported(old, out)
        killed(start_job(partial(exported, new, out, overwrite=True), hook=DieAt(rng.randrange(80))))
        assert ids(out) in (list(range(25)), list(range(100, 118)))
        exported(new, out, overwrite=True)
        assert ids(out) == list(range(100, 118))
        assert len(list(out.iterdir())) == 1 + 4


def begun_meanwhile(monkeypatch: pytest.MonkeyPatch, url: Path | str, record: ExportRecord) -> list[Any]:
    """Let another replacement begin once the next one has listed the folder. It is appended to the returned list."""
    others = list[Any]()

    def meanwhile(storage: Storage) -> Any:
        monkeypatch.undo()
        others.append(replacing.Replacing.begin(open_storage(url), record))
        return names_in(storage)

    monkeypatch.setattr(replacing, "names_in", meanwhile)
    return others


def test_of_two_exports_that_begin_together_one_is_refused(
    datasets: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both would give their files the same numbers."""
    old, new, out = *datasets, tmp_path / "out"
    exported(old, out)
    record = decode_record((out / "_mdsx-export.json").read_bytes(), "record")
    others = begun_meanwhile(monkeypatch, out, record)
    with pytest.raises(mdsx.ChangedError, match="another export to this folder began just now"):
        exported(new, out, overwrite=True)
    assert ids(out) == list(range(25))
    others[0].withdraw()
    exported(new, out, overwrite=True)
    assert ids(out) == list(range(100, 118))


@pytest.mark.parametrize("damaged", [False, True])
def test_an_export_that_was_overwritten_meanwhile_fails_and_leaves_the_new_one(
    datasets: tuple[Path, Path], tmp_path: Path, damaged: bool
) -> None:
    old, new, out = *datasets, tmp_path / "out"
    if damaged:
        shard = next(old.glob("shard*"))
        shard.write_bytes(shard.read_bytes()[:-1] + b"x")

    overwritten: list[mdsx.Export] = []

    def overwrite(progress: mdsx.Progress) -> None:
        if not overwritten:
            overwritten.append(exported(new, out, overwrite=True))

    with pytest.raises(mdsx.CorruptError if damaged else mdsx.ChangedError):
        exported(old, out, watch=overwrite)
    assert ids(out) == list(range(100, 118))
    assert exported(new, out).already


def test_an_object_store_replaces_too(datasets: tuple[Path, Path], s3_url: str) -> None:
    for dataset in (*datasets, datasets[1]):
        files = exported(dataset, s3_url, overwrite=True).files
        assert {entry.key for entry in open_storage(s3_url).list()} == {"_mdsx-export.json", *files}


def test_of_two_exports_to_an_object_store_that_begin_together_one_is_refused(
    datasets: tuple[Path, Path], s3_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both would give the same names to as many files, and a cloud takes the same list of names twice."""
    old, _ = datasets
    exported(old, s3_url)
    storage = open_storage(s3_url)
    before = {entry.key: storage.get(entry.key).data for entry in storage.list()}
    record = decode_record(storage.get("_mdsx-export.json").data, "record")
    others = begun_meanwhile(monkeypatch, s3_url, record)
    with pytest.raises(mdsx.ChangedError, match="another export to this folder began just now"):
        exported(old, s3_url, overwrite=True)
    others[0].withdraw()
    assert {entry.key: storage.get(entry.key).data for entry in storage.list()} == before
