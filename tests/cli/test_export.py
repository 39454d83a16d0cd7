"""`mdsx export`: its output, its options and its exit status.

tests/transfer/exporting has what is exported, and kills.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

import mdsx
from tests.cli.conftest import Run


def test_prints_how_columns_are_written_and_what_was_exported(run: Run, dataset: Path, tmp_path: Path) -> None:
    size = sum(path.stat().st_size for path in dataset.glob("shard.*"))
    status, out, err = run("export", "tar", dataset, tmp_path / "out", "--rename", "cls=label", "--file-samples", 200)
    assert (status, err) == (0, "")
    assert out.splitlines() == [
        f"{size / 1000:.1f} kB, to 2 files in {tmp_path}/out; columns:",
        "  name  str     text; back with --column 'name=str'",
        "  cls   int64?  a number as text; back with --column 'cls=int64?'",
        "  bits  bytes   its bytes",
        f"300 samples in 2 files in {tmp_path}/out",
    ]
    again = run("export", "tar", dataset, tmp_path / "out", "--rename", "cls=label", "--file-samples", 200)
    assert again.out == f"{tmp_path}/out was finished before: 300 samples in 2 files; nothing to do\n"
    assert again.status == 0


def test_json_is_one_object(run: Run, dataset: Path, tmp_path: Path) -> None:
    out = run("export", "jsonl", dataset, tmp_path / "out", "--json", "--drop", "name").out
    assert json.loads(out) == {
        "url": f"{tmp_path}/out",
        "samples": 300,
        "files": {"data-00000.jsonl": 300},
        "already": False,
        "columns": {"label": "int64?", "bits": "bytes"},
        "forms": {"label": "a number", "bits": "base64 text"},
        "warnings": [],
    }


def test_all_options_reach_the_export(run: Run, dataset: Path, tmp_path: Path) -> None:
    chosen = ["--column", "label", "--column", "name", "--file-size", "4kB", "--num-workers", 1]
    assert run("export", "parquet", dataset, tmp_path / "p", *chosen, "--compression", "gzip:1").status == 0
    metadata = pq.read_metadata(tmp_path / "p" / "data-00001.parquet")
    assert (metadata.schema.names, metadata.row_group(0).column(0).compression) == (["label", "name"], "GZIP")
    assert run("export", "jsonl", dataset, tmp_path / "j", "--nan", "null", "--compression", "zstd").status == 0
    assert (tmp_path / "j" / "data-00000.jsonl.zst").exists()
    assert run("export", "tar", dataset, tmp_path / "t", "--key-until", "last-dot").status == 0
    assert run("export", "parquet", dataset, tmp_path / "g", "--row-group-size", "1kB").status == 0


def test_files_indexed_elsewhere_are_exported(run: Run, dataset: Path, tmp_path: Path) -> None:
    run("export", "parquet", dataset, tmp_path / "files")
    mdsx.index_parquet(tmp_path / "files", index=tmp_path / "index")
    assert run("export", "jsonl", tmp_path / "files", tmp_path / "out", "--index", tmp_path / "index").status == 0
    assert len((tmp_path / "out" / "data-00000.jsonl").read_text().splitlines()) == 300


def test_an_error_prints_one_line_with_status_1(run: Run, dataset: Path, tmp_path: Path) -> None:
    status, out, err = run("export", "jsonl", dataset, dataset)
    assert (status, out) == (1, "")
    assert err == f"mdsx: error: {dataset}: the folder is not empty (found index.json); export to an empty folder\n"
    assert run("export", "jsonl", dataset, tmp_path / "out", "--rename", "name").status == 2
    assert run("export", "csv", dataset, tmp_path / "out").status == 2


def test_warnings_go_to_stderr_and_json(run: Run, tmp_path: Path) -> None:
    with mdsx.Writer(tmp_path / "in", {"a": "int8"}, metadata={"arrow_schema": "?"}) as out:
        out.write({"a": 1})
    status, text, err = run("export", "parquet", tmp_path / "in", tmp_path / "out", "--json")
    (warning,) = json.loads(text)["warnings"]
    assert (status, err) == (0, f"mdsx: warning: {warning}\n")


def test_ctrl_c_ends_with_status_130_and_the_same_command_continues(tmp_path: Path) -> None:
    with mdsx.Writer(tmp_path / "in", {"text": "str"}, shard_size="64KiB") as writer:
        for number in range(20_000):
            writer.write({"text": f"text {number} " * 3})
    command = [sys.executable, "-m", "mdsx", "export", "jsonl", f"{tmp_path}/in", f"{tmp_path}/out",
               "--file-size", "16KiB", "--compression", "zstd"]  # fmt: skip
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    # Tests in a shell's background ignore SIGINT, and so would their child processes.
    pipes["preexec_fn"] = lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)
    with subprocess.Popen(command, **pipes) as job:
        while job.poll() is None and not (tmp_path / "out" / "data-00000.jsonl.zst").exists():
            time.sleep(0.01)
        job.send_signal(signal.SIGINT)
        _, err = job.communicate()
    assert (job.returncode, err) == (130, "mdsx: interrupted; the same command continues from here\n")
    done = len(list((tmp_path / "out").glob("data-*")))
    mdsx.export("jsonl", tmp_path / "in", tmp_path / "out", file_size="16KiB", compression="zstd")
    assert 0 < done < len(list((tmp_path / "out").glob("data-*")))
