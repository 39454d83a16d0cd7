"""Whatever mdsx reads is exported, from anywhere to anywhere; a killed export continues; files have equal bytes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any, Literal

import pyarrow.parquet as pq
import pytest

import mdsx
from mdsx import CorruptError, MissingError, SampleError, UsageError
from mdsx.datasets import excerpt_of
from mdsx.testing.subject import COUNT, FIRST, Subject, shards_of
from mdsx.transfer.exporting.record import RECORD
from tests.foreign.tars.tars import png
from tests.shards.formats.subjects import SUBJECTS
from tests.transfer.exporting.conftest import write
from tests.writer.jobs import DieBefore, killed, start_job

Kind = Literal["tar", "parquet", "jsonl"]
KINDS: tuple[Kind, ...] = ("tar", "parquet", "jsonl")
FORMATS = [each for each in SUBJECTS if each.name in ("ours", "parquet", "tar", "mds", "mds-hashes")]


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def lines(folder: Path) -> list[Any]:
    return [json.loads(line) for path in sorted(folder.glob("*.jsonl")) for line in path.open(encoding="utf-8")]


@pytest.mark.parametrize("subject", FORMATS, ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_all_formats_are_exported(subject: Subject, kind: Kind, tmp_path: Path) -> None:
    subject.write(tmp_path / "in", shards_of(subject.columns, FIRST))
    dataset = mdsx.Dataset(tmp_path / "in", cache=tmp_path / "cache")
    mdsx.export(kind, dataset, tmp_path / "out", file_size="2kB", columns=["id", "extra", "text", "vector"])
    expected = [subject.expected(number) for number in range(FIRST, FIRST + COUNT)]
    if kind == "tar":
        assert sum(1 for path in (tmp_path / "out").glob("*.tar")) > 1
        first = content(tmp_path / "out")["data-00000.tar"]
        assert f'{{"number":{FIRST},"list":[1,null]}}'.encode() in first
    elif kind == "parquet":
        found = pq.read_table(tmp_path / "out").to_pylist()
        extra = [each["extra"] for each in found]
        assert [json.loads(each) if isinstance(each, str) else each for each in extra] == [e["extra"] for e in expected]
        assert [each["vector"] for each in found] == [each["vector"] for each in expected]
    else:
        assert lines(tmp_path / "out") == [
            {name: each[name] for name in ("id", "extra", "text", "vector")} for each in expected
        ]


@pytest.mark.parametrize("compression", [None, "zstd"])
def test_datasets_and_exports_may_be_remote(s3_url: str, tmp_path: Path, compression: str | None) -> None:
    with mdsx.Writer(f"{s3_url}/in", {"n": "int64", "text": "str"}, shard_size=2000, compression=compression) as out:
        for number in range(300):
            out.write({"n": number, "text": f"text {number}"})
    dataset = mdsx.Dataset(f"{s3_url}/in", cache=tmp_path / "cache")
    export = mdsx.export("jsonl", dataset, f"{s3_url}/out", file_size="4kB")
    mdsx.export("jsonl", dataset, tmp_path / "out", file_size="4kB")
    from mdsx.storage import open_storage

    storage = open_storage(f"{s3_url}/out")
    assert export.url == f"{s3_url}/out"
    assert {entry.key: storage.get(entry.key).data for entry in storage.list()} == content(tmp_path / "out")
    assert [each["n"] for each in lines(tmp_path / "out")] == list(range(300))
    assert mdsx.export("jsonl", dataset, f"{s3_url}/out", file_size="4kB").already
    with pytest.raises(UsageError, match="the folder is not empty"):
        mdsx.export("jsonl", dataset, f"{s3_url}/in")


def test_files_have_the_same_bytes_for_any_number_of_processes(dataset: Path, tmp_path: Path) -> None:
    for processes in (1, 2):
        mdsx.export("tar", dataset, tmp_path / str(processes), file_size="40kB", num_workers=processes)
    assert len(content(tmp_path / "1")) == 4
    assert content(tmp_path / "1") == content(tmp_path / "2")


def test_progress_ends_with_everything(dataset: Path, tmp_path: Path) -> None:
    seen: list[mdsx.Progress] = []
    mdsx.export("jsonl", dataset, tmp_path / "out", file_size="40kB", watch=seen.append)
    assert (seen[0].samples, seen[0].size) == (0, 0)
    sizes = [progress.size for progress in seen]
    assert sizes == sorted(sizes)
    assert (seen[-1].samples, seen[-1].size) == (200, seen[-1].of_size)
    assert seen[-1].of_size == sum(path.stat().st_size for path in dataset.glob("shard.*"))


# --- which samples and columns


def test_columns_are_chosen_renamed_and_left_out(dataset: Path, tmp_path: Path) -> None:
    mdsx.export("jsonl", dataset, tmp_path / "1", columns={"n": "cls", "text": "txt"}, rename={"number": "n"})
    assert lines(tmp_path / "1")[3] == {"number": -2, "text": "tëxt\n3"}
    export = mdsx.export("jsonl", dataset, tmp_path / "2", columns=["txt", "cls"], drop=["txt"])
    assert lines(tmp_path / "2")[3] == {"cls": -2}
    assert (export.samples, export.columns, export.files) == (200, {"cls": "int64"}, {"data-00000.jsonl": 200})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"columns": ["none"]}, "there is no such column"),
        ({"drop": ["none"]}, "there is no such column"),
        ({"rename": {"x": "none"}}, "there is no such column"),
        ({"rename": {"cls": "txt"}}, "renamed twice, or to the name of another column"),
        ({"rename": {"x": "txt", "y": "txt"}}, "renamed twice, or to the name of another column"),
        ({"columns": "txt"}, "columns and drop must be lists of names"),
        ({"columns": ["txt"], "drop": ["txt"]}, "no column is left"),
        ({"num_workers": 0}, "num_workers must be an integer of at least 1"),
        ({"file_samples": 0}, "file_samples must be an integer of at least 1"),
        ({"file_size": "0"}, "file_size must be at least 1 byte"),
        ({"key_until": "last-dot"}, "exporting jsonl has no such option"),
    ],
)
def test_wrong_arguments_are_refused_before_anything_is_written(
    dataset: Path, tmp_path: Path, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        mdsx.export("jsonl", dataset, tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()


def test_a_selection_is_exported_and_other_selections_are_other_exports(dataset: Path, tmp_path: Path) -> None:
    some = mdsx.Dataset(dataset).select(range(1, 200, 2))
    mdsx.export("jsonl", some, tmp_path / "out", columns=["cls"], file_samples=30)
    assert [each["cls"] for each in lines(tmp_path / "out")] == [n - 5 for n in range(1, 200, 2)]
    with pytest.raises(UsageError, match="another dataset, another version of it, or"):
        mdsx.export("jsonl", some.select(0, 50), tmp_path / "out", columns=["cls"], file_samples=30)


def test_joined_datasets_are_exported(dataset: Path, tmp_path: Path) -> None:
    scores = write(tmp_path / "scores", {"mark": "float32"}, ({"mark": n / 4} for n in range(200)))
    both = mdsx.zip(mdsx.Dataset(dataset, columns=["cls"]), mdsx.Dataset(scores))
    mdsx.export("jsonl", both, tmp_path / "out")
    assert lines(tmp_path / "out")[8] == {"cls": 3, "mark": 2.0}


@pytest.mark.parametrize("kind", KINDS)
def test_a_dataset_without_samples_has_one_file(tmp_path: Path, kind: Kind) -> None:
    path = write(tmp_path / "in", {"a": "int8"}, [])
    assert mdsx.export(kind, path, tmp_path / "out").files == {f"data-00000.{kind}": 0}


# --- the output


def test_a_finished_export_has_nothing_to_do(dataset: Path, tmp_path: Path) -> None:
    assert not mdsx.export("jsonl", dataset, tmp_path / "out").already
    before = content(tmp_path / "out")
    assert mdsx.export("jsonl", dataset, tmp_path / "out").already
    assert content(tmp_path / "out") == before
    assert json.loads(before[RECORD])["files"] == {"data-00000.jsonl": 200}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"columns": {"a": "x"}}, {"columns": {"a": "y"}}),
        ({"columns": {"x": mdsx.Cast("x", "float32")}}, {"columns": {"x": mdsx.Cast("x", "int16")}}),
        ({"dtypes": {"x": "float32"}}, {"dtypes": {"x": "int16"}}),
        ({"fill": {"score": 0}}, {"fill": {"score": 9}}),
        ({"decode": {"im": mdsx.Image(2)}}, {"decode": {"im": mdsx.Image(4)}}),
    ],
)
@pytest.mark.parametrize("stops", [False, True])
def test_only_the_same_values_continue_an_export(tmp_path: Path, one: Any, other: Any, stops: bool) -> None:
    """The dataset and the names of its columns are the same; each call opens the dataset anew."""
    types = {"x": "int64", "y": "int64", "score": "int64?", "im": "png"}
    samples = ({"x": n, "y": -n, "score": n if n % 2 else None, "im": png()} for n in range(30))
    path, out = write(tmp_path / "in", types, samples), tmp_path / "out"

    def run(options: Any, watch: Callable[[mdsx.Progress], object] = lambda progress: None) -> mdsx.Export:
        return mdsx.export("jsonl", mdsx.Dataset(path, **options), out, file_samples=10, watch=watch)

    def stop(progress: mdsx.Progress) -> None:
        if progress.samples >= 10:
            raise InterruptedError

    with pytest.raises(InterruptedError) if stops else nullcontext():
        run(one, stop if stops else lambda progress: None)
    before = content(out)
    with pytest.raises(UsageError, match=r"another export; this would be another dataset, .* read other values"):
        run(other)
    assert content(out) == before
    assert run(one).already is not stops
    assert before.items() - {(RECORD, before[RECORD])} <= content(out).items()


@pytest.mark.parametrize("name", ["out.tar", "out.jsonl.gz", "out.parquet"])
def test_the_output_is_a_folder(dataset: Path, tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match="the output must be a folder"):
        mdsx.export("jsonl", dataset, tmp_path / name)
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(UsageError, match="the output must be a folder"):
        mdsx.export("jsonl", dataset, tmp_path / "file")


def test_an_output_with_too_long_a_path_is_an_error(dataset: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="the path is too long; give a shorter path"):
        mdsx.export("jsonl", dataset, tmp_path / ("x" * 256))


def test_a_folder_with_other_things_is_refused(dataset: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "README").write_bytes(b"mine")
    with pytest.raises(UsageError, match=r"the folder is not empty \(found README\)"):
        mdsx.export("jsonl", dataset, tmp_path / "out")
    assert content(tmp_path / "out") == {"README": b"mine"}


def test_a_missing_dataset_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(MissingError):
        mdsx.export("jsonl", tmp_path / "in", tmp_path / "out")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("column", ["text", "n"])
def test_a_damaged_sample_is_an_error_that_names_it_and_leaves_no_file(tmp_path: Path, kind: Kind, column: str) -> None:
    path = write(tmp_path / "in", {"n": "int64", "text": "str"}, ({"n": n, "text": f"text {n}."} for n in range(90)),
                 shard_size=2000)  # fmt: skip
    shard = path / "shard.00001.mdsx"
    data = bytearray(shard.read_bytes())
    data[data.index(b"text 51.")] ^= 1
    shard.write_bytes(data)
    with pytest.raises(CorruptError) as raised:
        mdsx.export(kind, path, tmp_path / "out", columns=[column], file_samples=30)
    assert raised.value.file == str(shard)
    first = int(excerpt_of(mdsx.Dataset(path)).shards.index.counts[0])
    assert f"sample {51 - first}" in str(raised.value)
    assert sorted(content(tmp_path / "out")) == [RECORD, f"data-00000.{kind}"]


def test_after_an_error_the_same_call_continues(tmp_path: Path) -> None:
    values = [0.5] * 50 + [float("nan")] + [0.5] * 9
    path = write(tmp_path / "in", {"x": "float32"}, ({"x": value} for value in values))
    for _ in range(2):
        with pytest.raises(SampleError, match="sample 50, column 'x'"):
            mdsx.export("jsonl", path, tmp_path / "out", file_samples=10, num_workers=2)
    with pytest.raises(UsageError, match="holds an unfinished part of another export; this would be nan null"):
        mdsx.export("jsonl", path, tmp_path / "out", file_samples=10, nan="null")
    assert list((tmp_path / "out").glob("data-*.jsonl"))  # the first is not always finished when another one fails


def test_after_an_error_without_a_finished_file_a_corrected_call_works(tmp_path: Path) -> None:
    path = write(tmp_path / "in", {"x": "float32"}, ({"x": value} for value in (float("inf"), 0.5)))
    with pytest.raises(SampleError, match=r"sample 0, column 'x': .*--nan null"):
        mdsx.export("jsonl", path, tmp_path / "out")
    mdsx.export("jsonl", path, tmp_path / "out", nan="null")
    assert lines(tmp_path / "out") == [{"x": None}, {"x": 0.5}]


def test_a_kill_at_the_beginning_leaves_no_file_behind(dataset: Path, tmp_path: Path) -> None:
    job = partial(mdsx.export, "jsonl", str(dataset), str(tmp_path / "out"))
    assert killed(start_job(job, hook=DieBefore(RECORD)))
    job()
    assert sorted(content(tmp_path / "out")) == [RECORD, "data-00000.jsonl"]


def test_a_killed_export_continues_with_any_number_of_processes(tmp_path: Path) -> None:
    large, out = tmp_path / "large", tmp_path / "out"
    with mdsx.Writer(large, {"text": "str"}, shard_size="64KiB") as writer:
        for number in range(20_000):
            writer.write({"text": f"text {number} " * 3})
    command = [sys.executable, "-m", "mdsx", "export", "jsonl", str(large), str(out), "--file-size", "16KiB",
               "--compression", "zstd", "--num-workers", "2"]  # fmt: skip
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True) as job:
        while job.poll() is None and not (out / "data-00002.jsonl.zst").exists():
            time.sleep(0.01)
        os.kill(job.pid, signal.SIGKILL)
        job.communicate()  # ends with the last process that holds the pipe
    assert job.returncode == -signal.SIGKILL
    before = {path.name: path.stat().st_mtime_ns for path in out.glob("data-*")}
    mdsx.export("jsonl", large, tmp_path / "whole", file_size="16KiB", compression="zstd")
    whole = content(tmp_path / "whole")
    assert 2 <= len(before) < len(whole) - 1  # one process may be ahead of the other
    assert all((out / name).read_bytes() == whole[name] for name in before)  # no file is half-written
    mdsx.export("jsonl", large, out, file_size="16KiB", compression="zstd")
    assert content(out) == whole
    assert {name: (out / name).stat().st_mtime_ns for name in before} == before  # finished files are kept
