"""`mdsx append` adds a part; `mdsx info` and `mdsx cat` know the snapshots."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import mdsx
from tests.cli.conftest import Run


@pytest.fixture
def grown(run: Run, tmp_path: Path) -> str:
    """Append a part of 2 samples to a dataset of 3, and return the fingerprint from before."""
    for folder, numbers in ((tmp_path, range(3)), (tmp_path / "part-00000", range(3, 5))):
        with mdsx.Writer(folder, {"number": "int64"}) as out:
            for number in numbers:
                out.write({"number": number})
    first = mdsx.Dataset(tmp_path).fingerprint
    status, out_text, err = run("append", tmp_path, "part-00000")
    assert (status, err) == (0, "")
    assert (
        out_text == f"appended part-00000: samples 3 to 4 of {tmp_path}; the previous state is the snapshot {first}\n"
    )
    return first


def test_a_part_is_appended_once(run: Run, tmp_path: Path, grown: str) -> None:
    status, out, _ = run("append", tmp_path, tmp_path / "part-00000", "--json")
    assert status == 0
    assert json.loads(out) == {
        "url": str(tmp_path),
        "part": "part-00000",
        "first": 3,
        "samples": 2,
        "fingerprint": mdsx.Dataset(tmp_path).fingerprint,
        "snapshot": None,
        "already": True,
    }
    expected = f"part-00000 had been appended before, as samples 3 to 4 of {tmp_path}; nothing to do\n"
    assert run("append", tmp_path, "part-00000").out == expected


def test_an_unfinished_part_is_named(run: Run, tmp_path: Path, grown: str) -> None:
    (tmp_path / "part-00001").mkdir()
    status, out, err = run("append", tmp_path, "part-00001")
    assert (status, out) == (1, "")
    assert "part-00001: the part is unfinished" in err


def test_info_lists_snapshots_and_shows_each(run: Run, tmp_path: Path, grown: str) -> None:
    assert run("info", tmp_path).out.endswith(f"snapshots\n  {grown}\n")
    assert json.loads(run("info", tmp_path, "--json").out)["snapshots"] == [grown]
    assert json.loads(run("info", tmp_path, "--snapshot", grown, "--json").out)["samples"] == 3
    status, _, err = run("info", tmp_path, "--snapshot", "0" * 32)
    assert status == 1
    assert f"one of {grown}, " in err


def test_cat_reads_a_snapshot(run: Run, tmp_path: Path, grown: str) -> None:
    assert len(run("cat", tmp_path, "--json").out.splitlines()) == 5
    assert len(run("cat", tmp_path, "--snapshot", grown, "--json").out.splitlines()) == 3
