"""`mdsx info` shows the contents of the index."""

from __future__ import annotations

import json
from pathlib import Path

import mdsx
from tests.cli.conftest import Run


def test_text_shows_the_index(run: Run, dataset: Path) -> None:
    status, out, _ = run("info", dataset)
    assert status == 0
    lines = [line.split(maxsplit=1) for line in out.splitlines()]
    assert ["format", "mdsx"] in lines
    assert ["checks", "checksums of samples, XXH3-128 of shards"] in lines
    assert ["samples", "300"] in lines
    assert ["compression", "none"] in lines
    assert ["fingerprint", mdsx.Dataset(dataset).fingerprint] in lines
    assert lines[-3:] == [["name", "str"], ["label", "int64?"], ["bits", "bytes"]]


def test_json_has_the_whole_index(run: Run, dataset: Path) -> None:
    output = json.loads(run("info", dataset, "--json").out)
    shards = list(dataset.glob("*.mdsx"))
    size = sum(path.stat().st_size for path in shards)
    assert output == {
        "url": str(dataset),
        "format": "mdsx",
        "checks": "checksums of samples, XXH3-128 of shards",
        "samples": 300,
        "shards": len(shards),
        "size": size,
        "raw_size": size,
        "raw_size_is_exact": True,
        "compression": None,
        "fingerprint": mdsx.Dataset(dataset).fingerprint,
        "columns": {"name": "str", "label": "int64?", "bits": "bytes"},
        "metadata": {},
        "snapshots": [],
        "selections": [],
    }


def test_metadata_is_shown_and_long_values_are_cut(run: Run, tmp_path: Path) -> None:
    with mdsx.Writer(tmp_path, {"a": "int64"}, metadata={"made by": {"job": 7}, "notes": "x" * 2000}):
        pass
    *_, title, job, notes = run("info", tmp_path).out.splitlines()
    assert title == "metadata"
    assert job.split(maxsplit=2) == ["made", "by", '{"job": 7}']
    assert notes.endswith("xxx...")
    assert len(notes) < 1100


def test_raw_and_stored_sizes_are_shown_separately(run: Run, tmp_path: Path) -> None:
    with mdsx.Writer(tmp_path / "x", {"text": "str"}, compression="zstd") as out:
        out.write({"text": "a" * 10**6})
    assert "1 MB uncompressed" in run("info", tmp_path / "x").out


def test_info_reads_from_s3(run: Run, s3_url: str) -> None:
    with mdsx.Writer(f"{s3_url}/x", {"text": "str"}) as out:
        out.write({"text": "a"})
    assert json.loads(run("info", f"{s3_url}/x", "--json").out)["samples"] == 1
