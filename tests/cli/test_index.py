"""`mdsx index`: of Parquet files, tars and token files."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import mdsx
from tests.cli.conftest import Run
from tests.foreign.tars.tars import sample_members, tar_bytes, write_tar
from tests.foreign.tokens.writers import documents, write_datatrove, write_megatron


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


def test_index_tar_says_what_it_found(run: Run, tmp_path: Path) -> None:
    for number in range(2):
        write_tar(tmp_path / f"{number}.tar", sample_members(range(number * 10, number * 10 + 10)))
    ran = run("index", "tar", f"{tmp_path}/{{0..1}}.tar", "--rename", "text=txt", "--column", "cls=uint8")
    assert ran.status == 0
    assert "20 samples in 2 tars" in ran.out
    assert "text     str" in ran.out
    assert f"the dataset is {tmp_path}" in ran.out
    assert (
        "2 of the tars were indexed before"
        in run("index", "tar", tmp_path, "--rename", "text=txt", "--column", "cls=uint8").out
    )
    assert run("verify", tmp_path).status == 0
    assert "doc/00000" in run("cat", tmp_path, "--count", 1).out


def test_index_tar_prints_json(run: Run, tmp_path: Path) -> None:
    write_tar(tmp_path / "data/0.tar", [("a.b.txt", b"x"), ("a.c.txt", b"y"), ("README", b"")])
    ran = run(
        "index", "tar", tmp_path / "data", "--index", tmp_path / "index", "--key-until", "last-dot",
        "--drop", "README", "--num-workers", 2, "--json",
    )  # fmt: skip
    found = json.loads(ran.out)
    assert found["columns"] == {"__key__": "str", "txt": "str"}
    assert (found["tars"], found["samples"], found["read"], found["checksums"]) == (1, 2, 1, True)
    assert (tmp_path / "index" / "_mdsx-tars.json").exists()


def test_index_tar_makes_the_index_of_another_one(run: Run, tmp_path: Path) -> None:
    write_tar(tmp_path / "0.tar", sample_members(range(10)))
    wids = tmp_path / "index.json"
    wids.write_text(json.dumps({"wids_version": 1, "shardlist": [{"url": "0.tar", "nsamples": 10}]}))
    ran = run("index", "tar", tmp_path, "--from", wids)
    assert ran.status == 0
    assert "has no checksums" in ran.out
    ran = run("index", "tar", tmp_path)
    assert f"warning: {wids} is an index of tars: with --from" in ran.err
    assert "has no checksums" not in ran.out


def test_index_tar_names_tar_member_and_offset(run: Run, tmp_path: Path) -> None:
    (tmp_path / "0.tar").write_bytes(tar_bytes([("0.cls", b"1"), ("1.cls", b"x")]))
    ran = run("index", "tar", tmp_path, "--column", "cls=int64")
    assert ran.status == 1
    assert f"mdsx: error: {tmp_path}/0.tar: member '1.cls', offset 1024: does not fit column 'cls'" in ran.err
    (tmp_path / "0.tar").rename(tmp_path / "0.tgz")
    ran = run("index", "tar", tmp_path)
    assert ran.status == 1
    assert "mdsx convert tar" in ran.err


# --- token files


@pytest.fixture
def tokens(tmp_path: Path) -> Path:
    (tmp_path / "tokens").mkdir()
    write_megatron(tmp_path / "tokens" / "a", documents(100))
    return tmp_path / "tokens"


def test_index_megatron_says_what_it_found(run: Run, tokens: Path) -> None:
    ran = run("index", "megatron", tokens)
    count = sum(map(len, documents(100)))
    assert ran.out.startswith(f"100 samples of {count:,} tokens in 1 shard of 1 file, ")
    assert "tokens  uint16[*]" in ran.out
    assert "the index has no hashes of the tokens (--hash): flipped bytes go unnoticed" in ran.out
    assert ran.out.endswith(f"the dataset is {tokens}\n")
    assert "flipped" not in run("index", "megatron", tokens, "--hash").out
    assert "XXH3-64 of documents" in run("info", tokens).out
    assert run("verify", tokens).status == 0
    assert json.loads(run("cat", tokens, "--count", 1, "--json").out)["tokens"] == documents(100)[0].tolist()
    assert "all 2 files checked exist" in run("doctor", tokens).out


def test_index_datatrove_prints_json(run: Run, tmp_path: Path) -> None:
    write_datatrove(tmp_path / "0.ds", documents(50), [each % 2 for each in documents(50)])
    found = json.loads(run("index", "datatrove", tmp_path, "--json").out)
    assert found == {
        "url": str(tmp_path),
        "files": 1,
        "samples": 50,
        "tokens": sum(map(len, documents(50))),
        "shards": 1,
        "size": 2 * sum(map(len, documents(50))),
        "columns": {"tokens": "uint16[*]", "loss": "uint8[*]"},
        "left_out": 0,
        "hashed": False,
        "warnings": [],
    }


def test_index_tokens_asks_where_samples_end(run: Run, tmp_path: Path) -> None:
    np.arange(105, dtype=np.uint16).tofile(tmp_path / "a.npy")
    ran = run("index", "tokens", tmp_path, "--dtype", "uint16")
    assert ran.status == 1
    assert "--separator" in ran.err
    found = json.loads(run("index", "tokens", tmp_path, "--dtype", "uint16", "--every", 10, "--json").out)
    assert (found["samples"], found["left_out"]) == (10, 5)
    assert "5 tokens belong to no sample" in found["warnings"][0]
    ran = run("index", "tokens", tmp_path, "--every", 10)
    assert ran.status == 1
    assert "--dtype uint16" in ran.err
