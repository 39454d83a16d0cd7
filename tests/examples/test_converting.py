"""The examples that make datasets of existing data, or read it in place: each runs as its first lines say."""

from __future__ import annotations

import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from tests.examples.runs import EXAMPLES


def run(program: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> str:
    """Run a program, and return what it prints."""
    monkeypatch.setattr("sys.argv", [program, str(folder)])
    runpy.run_path(str(EXAMPLES / program), run_name="__main__")
    return capsys.readouterr().out


def test_json_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    skipped, *found = run("convert_jsonl.py", tmp_path / "new", monkeypatch, capsys).splitlines()
    assert skipped.startswith(f"skipped: {tmp_path}/new/raw-2.jsonl.gz: line 251: the line is not JSON")
    assert found == [
        "1000 samples: {'id': 'int64', 'score': 'float32', 'messages': 'json', 'lang': 'str?'}",
        "one epoch has every sample once: True",
    ]


def test_parquet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("convert_parquet.py", tmp_path, monkeypatch, capsys).splitlines() == [
        "1200 samples: {'id': 'int32', 'text': 'str', 'day': 'int32'}",
        "one epoch has every sample once: True",
        "the same table comes back: True int32 string date32[day]",
    ]


def test_mds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    golden = EXAMPLES.parent / "tests" / "foreign" / "mds" / "golden" / "encoding-jpeg"
    monkeypatch.setattr("sys.argv", ["convert_mds.py", str(golden), str(tmp_path / "out")])
    runpy.run_path(str(EXAMPLES / "convert_mds.py"), run_name="__main__")
    assert capsys.readouterr().out.splitlines() == [
        "3 samples: {'x': 'jpeg', 'y': 'str'}",
        "the samples are the same: True",
        "verified: True",
    ]


def test_tars_in_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("index_tars.py", tmp_path, monkeypatch, capsys).splitlines() == [
        "1000 samples in 4 tars: {'__key__': 'str', 'npy': 'float32[8,8]', 'cls': 'int64'}",
        "read again: 0 tars",
        "a sample: 000500 (8, 8) 0",
        "classified: True",
        "verified: True",
    ]


def test_build(tmp_path: Path) -> None:
    """In a process of its own: its workers import it as a script."""
    command = [sys.executable, str(EXAMPLES / "build_corpus.py"), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (done.stdout.splitlines(), done.stderr) == (
        ["1000 samples", "1000 samples in packed rows of (8, 64)"],
        "",
    )


def test_tfrecord_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    skipped, *found = run("convert_tfrecord.py", tmp_path / "new", monkeypatch, capsys).splitlines()
    assert skipped.startswith(f"skipped: {tmp_path}/new/train-00002.tfrecord: record 250, offset ")
    assert found == [
        "1000 samples: {'boxes': 'float32[*,4]', 'label': 'int64', 'image': 'jpeg'}",
        "one epoch has every sample once: True",
    ]


def test_indexed_datasets_of_megatron(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("convert_megatron.py", tmp_path / "new", monkeypatch, capsys).splitlines() == [
        "1000 samples: {'tokens': 'uint16[*]'}",
        "rows of an epoch have every token once: True",
    ]


def test_a_dataset_of_hugging_face(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("convert_huggingface.py", tmp_path / "new", monkeypatch, capsys).splitlines() == [
        "300 samples: {'image': 'png', 'caption': 'str', 'class': 'int64'}",
        "one epoch: {'cat': 100, 'dog': 100, 'fox': 100}",
        "images are stored as they were: True",
    ]


def test_tars(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("convert_tar.py", tmp_path, monkeypatch, capsys).splitlines() == [
        "120 samples: {'__key__': 'str', 'jpg': 'jpeg', 'cls': 'int64', 'txt': 'str'}",
        "one epoch has every sample once: True",
        "the same members come back: True",
    ]
