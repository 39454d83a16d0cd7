"""`mdsx cache`: show, prune, clear and warm, for people and for programs."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

import mdsx
from tests.cli.conftest import Run
from tools.servers.s3 import S3Server

COUNT = 40


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the cache is by default."""
    monkeypatch.setenv("MDSX_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def url(tmp_path: Path) -> str:
    """A compressed dataset, which is read through the cache."""
    url = str(tmp_path / "data")
    with mdsx.Writer(url, {"id": "int64", "text": "str"}, shard_size=1000, compression="zstd") as out:
        for number in range(COUNT):
            out.write({"id": number, "text": f"text {number} " * 10})
    return url


def as_json(run: Run, *arguments: object) -> Any:
    status, out, err = run("cache", *arguments, "--json")
    assert (status, err) == (0, "")
    return json.loads(out)


def test_warm_then_show_then_clear(run: Run, url: str, directory: Path) -> None:
    status, out, err = run("cache", "warm", url)
    shards = len(list(Path(url).glob("shard.*")))
    assert (status, err) == (0, "")
    assert out.startswith(f"{shards} of {shards} shards are in {directory}; {shards} fetched now, ")
    status, out, err = run("cache")
    title, _, head, line = out.splitlines()
    assert (status, err) == (0, "")
    assert title.startswith(f"{directory}: ")
    assert head.split() == ["dataset", "fingerprint", "shards", "size", "last", "used", "held"]
    assert line.split()[:3] == [url, mdsx.Dataset(url).fingerprint[:12], str(shards)]
    assert re.search(r"  \d+ s ago +0$", line)
    status, out, err = run("cache", "clear", url)
    assert (status, err) == (0, "")
    assert out.startswith(f"removed {shards} shards (")
    assert out.endswith(f"0 shards (0 B) of {url} left\n")
    assert not list(directory.glob("*/*.mdsx"))


def test_json_has_all_of_it(run: Run, url: str, directory: Path) -> None:
    warmed = as_json(run, "warm", url, "--shards", 2)
    assert (warmed["shards"], warmed["cached"], warmed["fetched"], warmed["busy"]) == (2, 2, 2, 0)
    assert warmed["warnings"] == []
    held = mdsx.Dataset(url)
    assert held[0]["id"] == 0
    shown = as_json(run, "show", url)
    (dataset,) = shown["datasets"]
    assert (dataset["urls"], dataset["shards"], dataset["held"]) == ([url], 2, 1)
    assert dataset["fingerprint"] == held.fingerprint
    assert 0 <= dataset["idle_seconds"] < 60
    assert [(each["pid"], each["held"]) for each in shown["processes"]] == [(os.getpid(), 1)]
    cleared = as_json(run, "clear", held.fingerprint[:10])
    assert [cleared[name]["files"] for name in ("removed", "held", "needed", "left")] == [1, 1, 0, 1]
    assert held[1]["id"] == 1


def test_what_stays_is_explained(run: Run, url: str, directory: Path) -> None:
    run("cache", "warm", url)
    held = mdsx.Dataset(url)
    assert held[0]["id"] == 0
    (directory / "thesis.txt").write_text("precious")
    out = run("cache", "clear").out
    assert "left 1 shard (" in out
    assert "that a process uses: see `mdsx cache`" in out
    out = run("cache", "--cache", directory).out
    assert str(os.getpid()) in out
    assert "not part of the cache, never removed: thesis.txt (1 in all)" in out


def test_prune_by_age_and_size(run: Run, url: str, directory: Path) -> None:
    run("cache", "warm", url)
    shards = sorted(directory.glob("*/*.mdsx"))
    kept = max(path.stat().st_size for path in shards)
    assert as_json(run, "prune", "--older-than", "1h")["removed"]["files"] == 0
    assert as_json(run, "prune", "--older-than", "0s", "--dry-run")["removed"]["files"] == len(shards)
    assert as_json(run, "prune", url, "--size", kept)["left"]["files"] == 1
    assert as_json(run, "prune", "--older-than", "0.0s")["left"]["files"] == 0


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("prune", "give --older-than AGE, --size SIZE or both"),
        ("prune --older-than week", "write it like 30m, 12h, 7d or 2w"),
        ("prune --size much", "--size is not a size"),
        ("clear", "there is no cache here"),
        ("show --cache /nowhere", "/nowhere: there is no cache here"),
    ],
)
def test_a_mistake_is_one_line_with_a_way_out(run: Run, directory: Path, line: str, message: str) -> None:
    status, out, err = run("cache", *line.split())
    assert (status, out) == (1, "")
    assert message in err
    assert err.count("\n") == 1
    assert not directory.exists()


def test_a_dataset_that_is_not_cached_is_named(run: Run, url: str, directory: Path) -> None:
    run("cache", "warm", url)
    status, _, err = run("cache", "clear", "s3://bucket/other")
    assert status == 1
    assert "no shard of s3://bucket/other is in this cache" in err
    assert run("cache", "prnue").status == 2


def test_warm_without_room_exits_with_status_1(run: Run, url: str, directory: Path, dataset: Path) -> None:
    status, _, err = run("cache", "warm", url, "--cache-limit", "3kB")
    assert status == 1
    assert "the first 3 fit; give --cache-limit" in err
    limit = as_json(run, "warm", url)["size"]
    packed = str(directory.parent / "packed")
    with mdsx.Writer(packed, {"text": "str"}, compression="zstd") as out:
        out.write({"text": "other " * 100})
    status, out_text, err = run("cache", "warm", packed, "--cache-limit", limit)
    assert status == 1
    assert out_text.startswith("0 of 1 shard")
    assert "no room for 1 shard: all cached shards were used within a day; see `mdsx cache prune`" in err
    status, _, err = run("cache", "warm", dataset)
    assert (status, "read in place" in err) == (1, True)


def test_warm_fetches_from_s3(run: Run, url: str, directory: Path, s3: S3Server, s3_url: str) -> None:
    with mdsx.Writer(f"{s3_url}/data", {"id": "int64"}, shard_size=400) as out:
        for number in range(COUNT):
            out.write({"id": number})
    found = as_json(run, "warm", f"{s3_url}/data/")
    assert found["cached"] == found["fetched"] == found["shards"] > 1
    (dataset,) = as_json(run)["datasets"]
    assert dataset["urls"] == [f"{s3_url}/data"]
