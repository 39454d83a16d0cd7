"""`mdsx lengths` stores the lengths of samples."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

import mdsx
from tests.cli.conftest import Run


def test_lengths_says_what_it_wrote(run: Run, tmp_path: Path) -> None:
    with mdsx.Writer(tmp_path / "data", {"tokens": "uint16[*]", "name": "str[*]"}) as out:
        for number in range(10):
            out.write({"tokens": [*range(number)], "name": []})
    status, out_, _ = run("lengths", tmp_path / "data", "--column", "tokens")
    file = tmp_path / "data" / "_lengths" / "tokens.u32"
    assert status == 0
    assert out_ == f"{file}: 10 lengths (values of column 'tokens'), 4.5 on average\n"
    assert json.loads(run("lengths", tmp_path / "data", "--column", "tokens", "--json").out) == {
        "file": str(file),
        "column": "tokens",
        "rule": "values",
        "samples": 10,
        "sum": 45,
        "mean": 4.5,
    }
    for command in ("info", "verify", "cat"):
        assert run(command, tmp_path / "data").status == 0
    status, _, err = run("lengths", tmp_path / "data", "--column", "name")
    assert status == 1
    assert "tokens" in err


def test_lengths_of_parquet_go_to_the_index(run: Run, tmp_path: Path) -> None:
    files, index = tmp_path / "files", tmp_path / "index"
    files.mkdir()
    pq.write_table(pa.table({"tokens": [[1, 2], [], [3]]}), files / "0.parquet", row_group_size=2)
    assert run("index", "parquet", files, "--index", index).status == 0
    status, out, _ = run("lengths", files, "--index", index, "--column", "tokens", "--json")
    assert status == 0
    assert json.loads(out)["sum"] == 3
    assert (index / "_lengths" / "tokens.u32").exists()
    assert not (files / "_lengths").exists()
    assert run("index", "parquet", files, "--index", index, "--replace-index").status == 0
