"""The commands and functions that read datasets work with each format; those that write refuse other formats."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

import mdsx
from mdsx.checks.doctor import Job, examine
from mdsx.format import NeedsSideObjects, ReadsExtents, ReadsParts, ReadsWhole
from mdsx.shards import Shards, index_keys
from mdsx.storage.cache import Cache
from mdsx.testing.subject import COUNT, FIRST, SHARDS, Subject, sample
from tests.cli.conftest import Run
from tests.cli.conftest import run as run
from tests.shards.formats.subjects import SOME

OTHERS = [subject for subject in SOME if not subject.ours]


@pytest.fixture(params=SOME, ids=str)
def subject(request: pytest.FixtureRequest) -> Subject:
    found: Subject = request.param
    return found


def test_info_names_the_format_and_what_is_checked(run: Run, subject: Subject, folder: Path) -> None:
    found = json.loads(run("info", folder, "--json").out)
    assert (found["format"], found["samples"], found["shards"]) == (subject.format.name, COUNT, SHARDS)
    assert found["raw_size_is_exact"] == (subject.reads is not ReadsParts)
    lines = [line.split(maxsplit=1) for line in run("info", folder).out.splitlines()]
    shown = {line[0]: line[-1] for line in lines}
    assert shown["format"] == subject.format.name
    assert shown["checks"] == found["checks"]
    shards = (path for path in folder.rglob("*") if path.is_file() and path.suffix != ".table")
    files = sum(path.name not in index_keys() for path in shards)
    in_files = f" in {files} file{'s' * (files > 1)}" if subject.reads in (ReadsParts, ReadsExtents) else ""
    assert shown["shards"] == f"{SHARDS}{in_files}"
    assert ("about " in shown["size"]) == (not found["raw_size_is_exact"])


def test_cat_prints_samples(run: Run, folder: Path) -> None:
    ran = run("cat", folder, "--start", 7, "--count", 1, "--json", "--column", "text", "--column", "id")
    assert json.loads(ran.out) == {"text": sample(FIRST + 7)["text"], "id": FIRST + 7}
    assert f"text {FIRST + 7}" in run("cat", folder, "--start", 7, "--count", 1).out


def test_verify_says_what_is_damaged_and_the_way_out(run: Run, subject: Subject, folder: Path) -> None:
    out = run("verify", folder).out
    assert out.startswith(f"undamaged: {COUNT} samples in {SHARDS} shards")
    assert out.endswith(f"; checked: {json.loads(run('info', folder, '--json').out)['checks']}\n")
    path = next(path for path in sorted(folder.rglob("*")) if path.is_file() and path.suffix != ".json")
    path.write_bytes(path.read_bytes() + b"x")
    ran = run("verify", folder)
    assert ran.status == 1
    assert path.name in ran.out
    assert ("mdsx repair" in ran.err) == subject.ours
    assert ("copy the damaged files again" in ran.err) == (not subject.ours)
    assert json.loads(run("verify", folder, "--json").out)["format"] == subject.format.name


def test_the_doctor_examines_a_dataset(folder: Path, tmp_path: Path) -> None:
    findings = {each.check: each for each in examine(str(folder), job=Job(), cache=Cache(tmp_path / "cache"))}
    assert findings["index"].state == "ok"
    assert findings["shards"].state == "ok"
    assert findings["throughput"].state == "ok"
    next(path for path in sorted(folder.rglob("*")) if path.is_file() and path.suffix != ".json").unlink()
    findings = {each.check: each for each in examine(str(folder), job=Job(), cache=Cache(tmp_path / "cache"))}
    assert findings["shards"].state == "problem"
    assert "1 of" in findings["shards"].found


def test_the_cache_is_warmed_and_shown(run: Run, far: str, tmp_path: Path) -> None:
    cache = tmp_path / "warmed"
    ran = run("cache", "warm", far, "--cache", cache, "--json")
    assert (ran.status, ran.err) == (0, "")
    assert json.loads(ran.out)["fetched"] == SHARDS
    assert json.loads(run("cache", "warm", far, "--cache", cache, "--json").out)["fetched"] == 0
    (shown,) = json.loads(run("cache", "show", "--cache", cache, "--json").out)["datasets"]
    assert shown["shards"] == SHARDS


@pytest.mark.parametrize("subject", [each for each in OTHERS if each.reads is not ReadsWhole], indirect=True, ids=str)
def test_the_index_may_be_elsewhere(run: Run, subject: Subject, folder: Path, far: str, tmp_path: Path) -> None:
    index, keys = Shards(folder).index, {subject.format.index_key}
    if isinstance(index, NeedsSideObjects):
        keys |= {index.side_object(shard).name for shard in range(SHARDS)}
    for key in keys:
        (tmp_path / "beside" / key).parent.mkdir(parents=True, exist_ok=True)
        (folder / key).rename(tmp_path / "beside" / key)
    there = ("--index", tmp_path / "beside")
    assert run("info", folder).status == 1
    assert json.loads(run("info", folder, *there, "--json").out)["samples"] == COUNT
    assert len(run("cat", folder, *there, "--count", 3, "--json").out.splitlines()) == 3
    assert run("verify", folder, *there).status == 0
    assert mdsx.verify(folder, index=tmp_path / "beside").ok
    assert (
        json.loads(run("cache", "warm", far, *there, "--cache", tmp_path / "warmed", "--json").out)["fetched"] == SHARDS
    )


# --- what is refused


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("subject", OTHERS, indirect=True, ids=str)
def test_other_formats_are_not_repaired(subject: Subject, folder: Path) -> None:
    files = contents(folder)
    with pytest.raises(mdsx.UsageError, match=rf"can be repaired .*{subject.format.name}.*mdsx verify") as caught:
        mdsx.repair(folder, drop_damaged=True)
    assert str(caught.value.file).endswith(subject.format.index_key)
    assert contents(folder) == files


@pytest.mark.parametrize("subject", OTHERS, indirect=True, ids=str)
def test_other_formats_are_not_written_to(subject: Subject, folder: Path) -> None:
    files = contents(folder)
    for resume in (False, True):
        with pytest.raises(mdsx.UsageError, match=rf"of another format.*{subject.format.name}.*another URL"):
            mdsx.Writer(folder, {"id": "int64"}, resume=resume)
    assert contents(folder) == files


@pytest.mark.parametrize("subject", OTHERS, indirect=True, ids=str)
def test_other_formats_are_not_merged(subject: Subject, folder: Path, tmp_path: Path) -> None:
    for number in range(2):
        with mdsx.Writer(folder / f"part-{number:05}", {"id": "int64"}) as out:
            out.write({"id": number})
    with pytest.raises(mdsx.UsageError, match=rf"can be merged .*{subject.format.name}"):
        mdsx.merge(folder, overwrite=True)
    shutil.copytree(folder, tmp_path / "parts" / "part-00000", ignore=shutil.ignore_patterns("part-*"))
    with pytest.raises((mdsx.UsageError, mdsx.MissingError), match=r"can be merged|the part is unfinished"):
        mdsx.merge(tmp_path / "parts")


@pytest.mark.parametrize("subject", OTHERS, indirect=True, ids=str)
def test_tars_are_not_converted_into_another_dataset(run: Run, folder: Path, tmp_path: Path) -> None:
    ran = run("convert", "tar", tmp_path / "x.tar", folder)
    assert ran.status == 1
    assert "there is a dataset of another format already" in ran.err
    assert "give another output" in ran.err


@pytest.mark.parametrize(
    ("name", "hint"),
    [("x.parquet", "mdsx index parquet"), ("x.mds", "give the folder to mdsx.Dataset"), ("x.mdsx", "give the folder")],
)
def test_files_of_other_formats_are_no_tars(name: str, hint: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(b"x")
    with pytest.raises(mdsx.UsageError, match=f"is not a tar.*{hint}"):
        mdsx.convert("tar", [str(tmp_path / name)], tmp_path / "out")


# --- where no index is


@pytest.mark.parametrize(
    ("files", "url", "hint"),
    [
        (["a.parquet", "year=1/b.parquet"], "", r"there are 2 \*\.parquet files here: .*mdsx index parquet {url}`"),
        (["part-0.snappy.parquet"], "", r"there is 1 \*\.parquet file here: .*mdsx index parquet {url}`"),
        (["shard.00000.mds"], "", r"without their index\.json"),
        (["shard.00000.mds.zstd"], "", r"\*\.mds\.zstd file here: .*without their index\.json"),
        (["a.tar", "b.tar", "c.parquet", "_mdsx-tars/d.tar"], "", r"2 \*\.tar files here: .*mdsx index tar {url}`"),
        (["a.bin", "a.idx", "b.bin", "b.idx"], "", r"2 \*\.bin files here: .*mdsx index megatron {url}`"),
        (["a.ds", "a.ds.index", "b.ds", "b.ds.index"], "", r"2 \*\.ds files here: .*mdsx index datatrove {url}`"),
        (["a.npy", "b.npy"], "", r"2 \*\.npy files here: .*mdsx index tokens {url} --dtype uint16`"),
        (["train.bin"], "", r"1 \*\.bin file here: .*mdsx index tokens {url} --dtype uint16`"),
        (["train/a.tar", "train/b.tar"], "", r"there are 2 \*\.tar files below train/: .*mdsx index tar {url}/train`"),
        (["train/a.tar", "val/b.tar"], "", r"there are 2 \*\.tar files here: .*mdsx index tar {url}`"),
        (["a.tar.gz"], "", r"1 \*\.tar\.gz file here: .*mdsx convert tar {url}/\*\.tar\.gz OUT`"),
        (["a.jsonl.gz"], "", r"1 \*\.jsonl\.gz file here: .*mdsx convert jsonl {url}/\*\.jsonl\.gz OUT`"),
        (["a.tfrecord"], "", r"mdsx convert tfrecord {url}/\*\.tfrecord OUT`"),
        (["shard.00000.mdsx"], "", r"resume=True, or see `mdsx repair {url}`"),
        (["train/index.json", "train/shard.00000.mds"], "", r"give the URL of one dataset: {url}/train$"),
        (["part-00000/index.json"], "", r"mdsx merge {url}`"),
        ([], "", "check the URL"),
        (["index.json"], "/index.json", r"without /index\.json: {url}$"),
        ([], "/a.parquet", r"give the URL of the folder: {url}$"),
        ([], "/lines.json", r"without /lines\.json: {url}$"),
    ],
)
def test_a_place_without_an_index_gets_the_right_hint(files: list[str], url: str, hint: str, tmp_path: Path) -> None:
    for name in files:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"x")
    with pytest.raises(mdsx.MissingError, match=hint.format(url=tmp_path)):
        mdsx.Dataset(f"{tmp_path}{url}")
    with pytest.raises(mdsx.MissingError, match=hint.format(url=tmp_path)):
        mdsx.Dataset(f"far://{tmp_path}{url}")
