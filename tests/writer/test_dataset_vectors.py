"""The datasets of the vectors: their values, and that mdsx merges, appends and repairs to the same bytes."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mdsx
from tests.vectors import datasets

FOLDER = Path(datasets.__file__).parent
VALUES: dict[str, list[dict[str, Any]]] = json.loads((FOLDER / "datasets-v1.json").read_text())


def plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        assert (value == value[0]).all()
        return {"repeat": int(value[0]), "times": len(value)}
    return value.item() if isinstance(value, np.generic) else value


def files(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_the_file_is_that_of_the_reference() -> None:
    assert datasets.text() == (FOLDER / "datasets-v1.json").read_text()


@pytest.mark.parametrize("name", VALUES)
def test_a_dataset_has_its_values(name: str) -> None:
    data = mdsx.Dataset(FOLDER / name)
    found = [{column: plain(value) for column, value in data[number].items()} for number in range(len(data))]
    assert found == VALUES[name]
    assert list(mdsx.verify(FOLDER / name)) == []


def test_a_merge_writes_the_golden_index(tmp_path: Path) -> None:
    golden = FOLDER / "good" / "merged"
    shutil.copytree(golden, tmp_path / "a", ignore=lambda at, _: ["index.json"] if at == str(golden) else [])
    mdsx.merge(tmp_path / "a")
    assert files(tmp_path / "a") == files(golden)


def test_an_append_writes_the_golden_index_and_its_snapshot(tmp_path: Path) -> None:
    golden = FOLDER / "good" / "appended"
    shutil.copytree(golden, tmp_path / "a", ignore=shutil.ignore_patterns("_lengths"))
    (snapshot,) = (tmp_path / "a").glob("index-*.json")
    snapshot.rename(tmp_path / "a" / "index.json")
    done = mdsx.append(tmp_path / "a", "part-00003")
    assert f"index-{done.snapshot}.json" == snapshot.name
    mdsx.write_lengths(tmp_path / "a", "text")
    assert files(tmp_path / "a") == files(golden)
    before = mdsx.Dataset(golden, snapshot=done.snapshot)
    assert [sample["text"] for sample in before] == ["x" * 5, "x" * 6]


def test_a_repair_writes_the_golden_shard_and_index(tmp_path: Path) -> None:
    for name, data in datasets.damaged().items():
        (tmp_path / name).write_bytes(data)
    mdsx.repair(tmp_path, drop_damaged=True)
    golden, found = files(FOLDER / "good" / "repaired"), files(tmp_path)
    assert {name: found[name] for name in golden} == golden
