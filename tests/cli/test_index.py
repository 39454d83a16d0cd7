"""`mdsx index parquet`."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import mdsx
from tests.cli.conftest import Run


@pytest.fixture
def files(tmp_path: Path) -> Path:
    folder = tmp_path / "year=2024"
    folder.mkdir()
    pq.write_table(pa.table({"id": range(10), "text": ["a"] * 10}), folder / "0.parquet", row_group_size=4)
    return tmp_path


def test_index_parquet_says_what_it_found(run: Run, files: Path) -> None:
    ran = run("index", "parquet", files)
    assert ran.status == 0
    assert "10 rows in 3 row groups of 1 file" in ran.out
    assert "text  str" in ran.out
    assert f"the dataset is {files}" in ran.out
    assert "warning: " in ran.err
    assert "year=2024" in ran.err
    shown = run("info", files)
    assert "Parquet" in shown.out
    assert "XXH3-128 of footers" in shown.out
    assert run("cat", files, "--count", 1).out.splitlines() == ["sample 0", "  id    0", "  text  'a'"]
    assert run("verify", files).status == 0


def test_index_parquet_prints_json(run: Run, files: Path, tmp_path: Path) -> None:
    ran = run(
        "index",
        "parquet",
        files / "year=2024" / "0.parquet",
        "--index",
        tmp_path / "index",
        "--json",
        "--column",
        "id=uint32",
    )
    found = json.loads(ran.out)
    assert found["columns"] == {"id": "uint32", "text": "str"}
    assert (found["samples"], found["shards"], found["files"], found["large"]) == (10, 3, 1, [])
    assert (tmp_path / "index" / "_mdsx-parquet.json").exists()


def test_commands_read_with_an_index_in_another_place(run: Run, files: Path, tmp_path: Path) -> None:
    index = tmp_path / "index"
    assert run("index", "parquet", files / "year=2024", "--index", index).status == 0
    data = files / "year=2024"
    for command in ("info", "cat", "verify"):
        assert run(command, data).status == 1
        assert run(command, data, "--index", index).status == 0
    assert run("cache", "warm", data, "--index", index, "--cache", tmp_path / "cache").status == 0
    assert mdsx.verify(data, index=index).ok


def test_index_parquet_names_a_file_that_is_damaged(run: Run, files: Path) -> None:
    (files / "1.parquet").write_bytes(b"PAR1")
    ran = run("index", "parquet", files)
    assert ran.status == 1
    assert f"mdsx: error: {files}/1.parquet: the file is too short to be a Parquet file" in ran.err
