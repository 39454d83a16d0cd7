"""The contracts of mdsx, kept by this package."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xxhash
from acme.frames import Frame
from acme.lines import LinesFormat

import mdsx
from mdsx.format import ReadsWhole
from mdsx.storage import Storage, open_storage
from mdsx.testing import COLUMNS, FormatContract, StorageContract, Subject, TypeContract


class TestFrame(TypeContract):
    type = "acme.Frame"
    values = (Frame(0.5, np.zeros((0, 3), np.int16)), Frame(1.0, np.arange(6, dtype=np.int16).reshape(2, 3)))
    refused = ("text", None, Frame(0.0, np.zeros((2, 2), np.int16)))

    def same(self, found: Frame, value: Frame) -> bool:
        return found.seconds == value.seconds and np.array_equal(found.points, value.points)


def write_lines(folder: Path, shards: Sequence[Sequence[dict[str, Any]]]) -> None:
    folder.mkdir()
    entries = []
    for number, samples in enumerate(shards):
        data = b"".join(json.dumps(sample).encode() + b"\n" for sample in samples)
        (folder / f"{number}.lines").write_bytes(data)
        entry = {"name": f"{number}.lines", "samples": len(samples), "size": len(data)}
        entries.append({**entry, "hash": xxhash.xxh3_128_hexdigest(data)})
    columns = {name: COLUMNS[name] for name in shards[0][0]}
    index = {"format": "acme-lines", "columns": columns, "shards": entries}
    (folder / LinesFormat.index_key).write_text(json.dumps(index))


class TestLines(FormatContract):
    @pytest.fixture
    def subject(self) -> Subject:
        columns = ["id", "text", "vector", "extra", "maybe"]
        return Subject("acme-lines", LinesFormat(), columns, ReadsWhole, write_lines)


class TestSqlite(StorageContract):
    @pytest.fixture
    def storage(self, tmp_path: Path) -> Storage:
        return open_storage(f"sqlite://{tmp_path}/objects.db/some/prefix")


def test_a_dataset_is_written_to_sqlite_and_read(tmp_path: Path) -> None:
    url = f"sqlite://{tmp_path}/objects.db"
    for part in range(2):
        with mdsx.Writer(f"{url}/frames/part-{part:05}", {"frame": "acme.Frame"}) as out:
            for number in range(50):
                out.write({"frame": Frame(50.0 * part + number, np.full((number, 3), number, np.int16))})
    mdsx.merge(f"{url}/frames")
    assert mdsx.verify(f"{url}/frames").ok
    loader = mdsx.Loader(f"{url}/frames", batch_size=10, cache=tmp_path / "cache")
    assert sorted(frame.seconds for batch in loader for frame in batch["frame"]) == list(range(100))


def test_a_dataset_of_lines_is_found_by_its_index(tmp_path: Path) -> None:
    write_lines(tmp_path / "data", [[{"id": number, "text": str(number)} for number in range(3)]])
    assert mdsx.Dataset(tmp_path / "data").take([2, 0])["text"] == ["2", "0"]
