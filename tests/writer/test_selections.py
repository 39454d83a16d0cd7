"""Named selections: stored next to the index, opened by name, kept right by append, checked by verify."""

from __future__ import annotations

import json
import multiprocessing
import pickle
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import mdsx
from mdsx.format import filenames
from mdsx.torch import StreamingDataLoader, StreamingDataset
from tests.format import reference
from tests.writer.jobs import DieBefore, killed, start_job
from tools.servers.s3 import S3Server

COLUMNS = {"id": "int64", "label": "int32", "tokens": "uint16[*]"}
WHERE = "label = 3 and length(tokens) > 10"


def write(url: Path | str, first: int, stop: int, **options: Any) -> None:
    with mdsx.Writer(url, COLUMNS, shard_size=2000, **options) as out:
        for number in range(first, stop):
            out.write({"id": number, "label": number % 5, "tokens": [1] * (number % 23)})


def wanted(start: int, stop: int) -> list[int]:
    return [number for number in range(start, stop) if number % 5 == 3 and number % 23 > 10]


def ids(data: mdsx.Dataset) -> list[int]:
    return [int(sample["id"]) for sample in data]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """200 samples, and 80 more in a part beside them."""
    write(tmp_path / "data", 0, 200)
    write(tmp_path / "data" / "part-00000", 200, 280)
    return tmp_path / "data"


def files(root: Path) -> list[str]:
    return sorted(path.name for path in (root / "_selections").glob("*"))


# --- written and opened


def test_a_stored_selection_is_the_filter(root: Path) -> None:
    done = mdsx.write_selection(root, "hard", WHERE)
    data = mdsx.Dataset(root, selection="hard")
    assert (done.samples, done.selected, len(data)) == (200, len(wanted(0, 200)), len(wanted(0, 200)))
    assert done.file == str(root / "_selections" / f"hard-{mdsx.Dataset(root).fingerprint}.json")
    assert ids(data) == wanted(0, 200)
    assert data.fingerprint == mdsx.Dataset(root).filter(WHERE).fingerprint
    assert ids(pickle.loads(pickle.dumps(data)).select(0, 2)) == wanted(0, 200)[:2]


def test_a_selection_is_replaced_under_its_name(root: Path) -> None:
    mdsx.write_selection(root, "hard", WHERE)
    mdsx.write_selection(root, "hard", "label = 4")
    assert len(files(root)) == 1
    assert {int(sample["label"]) for sample in mdsx.Dataset(root, selection="hard")} == {4}


@pytest.mark.parametrize(("where", "count"), [("label < 9", 200), ("label > 9", 0), ("id >= 190", 10)])
def test_all_none_and_runs_are_selections(root: Path, where: str, count: int) -> None:
    mdsx.write_selection(root, "some", where)
    data = mdsx.Dataset(root, selection="some")
    assert len(data) == count
    assert data.fingerprint == mdsx.Dataset(root).filter(where).fingerprint


def test_every_process_opens_the_same_samples(root: Path) -> None:
    mdsx.write_selection(root, "hard", WHERE)
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        found = pool.map(_fingerprint, [str(root)] * 2)
    assert set(found) == {mdsx.Dataset(root).filter(WHERE).fingerprint}


def _fingerprint(url: str) -> str:
    return mdsx.Dataset(url, selection="hard").fingerprint


def test_a_run_continues_with_its_selection_only(root: Path) -> None:
    mdsx.write_selection(root, "hard", WHERE)

    def loader(where: str | None) -> StreamingDataLoader:
        data = mdsx.Dataset(root, selection="hard") if where is None else mdsx.Dataset(root).filter(where)
        return StreamingDataLoader(StreamingDataset(data, seed=3), batch_size=4, drop_last=False)

    run = loader(None)
    seen = [*next(iter(run))["id"].tolist()]
    state = run.state_dict()
    resumed = loader(WHERE)  # the same samples, however they were chosen
    resumed.load_state_dict(state)
    for batch in resumed:
        seen += batch["id"].tolist()
    assert sorted(seen) == wanted(0, 200)
    with pytest.raises(mdsx.StateError, match="fingerprint"):
        loader("label = 3 and length(tokens) > 11").load_state_dict(state)


def test_a_mixture_has_selections(root: Path) -> None:
    mdsx.write_selection(root, "hard", WHERE)
    described = {"components": {"hard": {"url": str(root), "selection": "hard"}, "all": {"url": str(root)}}}
    mixture = mdsx.Mixture.from_json(described)
    assert mixture.sizes == (len(wanted(0, 200)), 200)
    same = mdsx.Mixture({"hard": mdsx.Dataset(root, selection="hard"), "all": str(root)})
    assert mixture.fingerprint == same.fingerprint


def test_a_selection_of_other_formats_is_beside_their_index(tmp_path: Path) -> None:
    source, index = tmp_path / "files", tmp_path / "index"
    source.mkdir()
    pq.write_table(pa.table({"a": [1, None, 3, 4]}), source / "0.parquet", row_group_size=3)
    mdsx.index_parquet(source, index=index)
    mdsx.write_selection(source, "some", "a > 1", index=index)
    assert [sample["a"] for sample in mdsx.Dataset(source, index=index, selection="some")] == [3, 4]
    assert not (source / "_selections").exists()


def test_a_selection_is_far_away(s3: S3Server, tmp_path: Path) -> None:
    url = s3.make_bucket("selections") + "/data"
    write(url, 0, 200)
    mdsx.write_selection(url, "hard", WHERE)
    assert ids(mdsx.Dataset(url, selection="hard", cache=mdsx.Cache(tmp_path / "cache"))) == wanted(0, 200)


# --- appended


def test_an_append_extends_selections(root: Path) -> None:
    mdsx.write_selection(root, "hard", WHERE)
    mdsx.write_selection(root, "late", "id >= 195")
    before = mdsx.Dataset(root, selection="hard").fingerprint
    done = mdsx.append(root, "part-00000")
    assert ids(mdsx.Dataset(root, selection="hard")) == wanted(0, 280)
    assert ids(mdsx.Dataset(root, selection="late")) == [*range(195, 280)]
    assert mdsx.Dataset(root, selection="hard").fingerprint == mdsx.Dataset(root).filter(WHERE).fingerprint
    old = mdsx.Dataset(root, selection="hard", snapshot=done.snapshot)
    assert (ids(old), old.fingerprint) == (wanted(0, 200), before)
    assert list(mdsx.verify(root)) == []


def test_a_kill_leaves_the_selection_of_the_dataset_that_is_there(root: Path) -> None:
    mdsx.write_selection(root, "hard", WHERE)
    assert killed(start_job(partial(mdsx.append, str(root), "part-00000"), hook=DieBefore("index.json")))
    assert len(files(root)) == 2  # the extended one is durable before the index
    assert ids(mdsx.Dataset(root, selection="hard")) == wanted(0, 200)
    mdsx.append(root, "part-00000")
    assert len(files(root)) == 2
    assert ids(mdsx.Dataset(root, selection="hard")) == wanted(0, 280)


def test_a_damaged_selection_does_not_stop_an_append(root: Path) -> None:
    file = Path(mdsx.write_selection(root, "hard", WHERE).file)
    file.write_bytes(file.read_bytes().replace(b'"label', b'"lebal', 1))
    with pytest.warns(UserWarning, match=r"selection 'hard' is not extended: .*damaged.*mdsx select"):
        mdsx.append(root, "part-00000")
    with pytest.raises(
        mdsx.MissingError, match=r"it belongs to another state of the dataset.*mdsx select .* --name hard"
    ):
        mdsx.Dataset(root, selection="hard")


def test_a_selection_made_before_an_append_ends_is_not_taken_for_the_whole(root: Path) -> None:
    mdsx.append(root, "part-00000")
    (snapshot,) = (path.stem.removeprefix("index-") for path in root.glob("index-*.json"))
    (root / "_selections").mkdir()
    bits = [number in wanted(0, 200) for number in range(200)]
    (root / filenames.selection("hard", snapshot)).write_bytes(reference.selection("hard", snapshot, WHERE, bits))
    assert ids(mdsx.Dataset(root, selection="hard", snapshot=snapshot)) == wanted(0, 200)
    with pytest.raises(mdsx.MissingError, match="another state"):
        mdsx.Dataset(root, selection="hard")


def test_a_dataset_that_is_overwritten_takes_its_selections_along(root: Path) -> None:
    mdsx.write_selection(root, "hard", WHERE)
    mdsx.append(root, "part-00000")
    write(root, 0, 30, overwrite=True)
    assert files(root) == []
    with pytest.raises(mdsx.MissingError, match="no such selection"):
        mdsx.Dataset(root, selection="hard")


# --- checked


def test_verify_finds_each_wrong_selection(root: Path) -> None:
    fingerprint = mdsx.Dataset(root).fingerprint
    good = [number in wanted(0, 200) for number in range(200)]
    path = root / filenames.selection("hard", fingerprint)
    path.parent.mkdir()
    cases = {
        "damaged": reference.selection("hard", fingerprint, WHERE, good).replace(b"label", b"lebal"),
        "another selection": reference.selection("soft", fingerprint, WHERE, good),
        "or of another dataset": reference.selection("hard", "0" * 32, WHERE, good),
        "place samples|samples: this is another": reference.selection("hard", fingerprint, WHERE, good[:-1]),
        "differs from the samples that its": reference.selection("hard", fingerprint, WHERE, [*good[1:], True]),
        "condition cannot be evaluated": reference.selection("hard", fingerprint, "no = 3", good),
        "another number of samples": reference.selection("hard", fingerprint, WHERE, good, selected=3),
    }
    for says, data in cases.items():
        path.write_bytes(data)
        (error,) = mdsx.verify(root)
        assert isinstance(error, mdsx.CorruptError)
        assert error.file == str(path)
        assert any(part in str(error) for part in says.split("|"))
        assert f"mdsx select {root}" in str(error)
    path.write_bytes(reference.selection("hard", fingerprint, WHERE, good))
    assert list(mdsx.verify(root)) == []
    assert path.read_bytes() == reference.selection("hard", fingerprint, WHERE, good)
    path.unlink()
    mdsx.write_selection(root, "hard", WHERE)
    assert path.read_bytes() == reference.selection("hard", fingerprint, WHERE, good)


def test_verify_names_the_damaged_selection_of_a_snapshot(root: Path) -> None:
    mdsx.write_selection(root, "hard", WHERE)
    done = mdsx.append(root, "part-00000")
    path = root / filenames.selection("hard", str(done.snapshot))
    path.write_bytes(path.read_bytes()[:-1])
    (error,) = mdsx.verify(root)
    assert error.file == str(path)


# --- refused


def test_what_is_no_selection_is_refused(root: Path) -> None:
    mdsx.write_selection(root, "hard", WHERE)
    for name in ("", "a/b", "../x", ".x", "é", "x" * 101, "a b", 3):
        with pytest.raises(mdsx.UsageError, match="not a valid name of a selection"):
            mdsx.write_selection(root, name, WHERE)  # type: ignore[arg-type]
        with pytest.raises(mdsx.UsageError, match="not a valid name of a selection"):
            mdsx.Dataset(root, selection=name)  # type: ignore[arg-type]
    with pytest.raises(mdsx.MissingError, match=r"no such selection \(expected one of hard, found easy\); write it"):
        mdsx.Dataset(root, selection="easy")
    with pytest.raises(mdsx.UsageError, match="there is no such column"):
        mdsx.write_selection(root, "easy", "nothing = 3")
    with pytest.raises(mdsx.UsageError, match="a condition as text"):
        mdsx.write_selection(root, "easy", np.arange(3))  # type: ignore[arg-type]
    with pytest.raises(mdsx.MissingError):
        mdsx.write_selection(root / "nowhere", "easy", WHERE)
    assert len(files(root)) == 1


def test_a_damaged_selection_is_refused(root: Path) -> None:
    path = Path(mdsx.write_selection(root, "hard", WHERE).file)
    good = path.read_bytes()
    for at in range(0, len(good), 7):
        path.write_bytes(good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :])
        with pytest.raises(mdsx.FormatError):
            mdsx.Dataset(root, selection="hard")
    path.write_bytes(good.replace(b'"version":1', b'"version":2'))
    with pytest.raises(mdsx.UnsupportedError, match="upgrade"):
        mdsx.Dataset(root, selection="hard")


def test_metadata_of_the_file_are_what_was_given(root: Path) -> None:
    path = Path(mdsx.write_selection(root, "hard", "label  =  3 AND NOT id<0").file)
    found = json.loads(path.read_bytes())
    assert found["where"] == "label  =  3 AND NOT id<0"
    assert found["selected"] == 40
