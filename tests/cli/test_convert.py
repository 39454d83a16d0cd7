"""`mdsx convert tar`: its output and exit status; after a kill or Ctrl-C, the same command continues."""

from __future__ import annotations

import hashlib
import json
import math
import os
import pty
import random
import shutil
import signal
import subprocess
import sys
import time
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import mdsx
from tests.cli.conftest import Run
from tests.conftest import Often
from tests.foreign.tars.tars import sample_members, write_tar


@pytest.fixture
def tars(tmp_path: Path) -> Path:
    for tar in range(3):
        write_tar(tmp_path / f"x-{tar:04d}.tar", sample_members(range(10 * tar, 10 * tar + 10)))
    return tmp_path


def test_prints_the_columns_and_what_was_converted(run: Run, tars: Path) -> None:
    status, out, err = run("convert", "tar", f"{tars}/x-{{0000..0002}}.tar", tars / "out")
    assert (status, err) == (0, "")
    assert out.splitlines() == [
        f"3 tars, 92.2 kB, to {tars}/out; columns:",
        "  __key__  str",
        "  txt      str",
        "  cls      int64",
        f"30 samples in {tars}/out",
    ]
    assert mdsx.Dataset(tars / "out").columns == {"__key__": "str", "txt": "str", "cls": "int64"}


def test_json_is_one_object(run: Run, tars: Path) -> None:
    out = run("convert", "tar", f"{tars}/*.tar", tars / "out", "--json", "--column", "CLS=uint8").out
    assert json.loads(out) == {
        "url": f"{tars}/out",
        "samples": 30,
        "skipped": 0,
        "already": False,
        "columns": {"__key__": "str", "txt": "str", "cls": "uint8"},
        "errors": [],
        "warnings": [],
    }


def test_all_options_reach_the_conversion(run: Run, tars: Path) -> None:
    options = ["--shard-size", "500B", "--compression", "zstd:1", "--num-workers", "2", "--column", "meta=json?"]
    assert run("convert", "tar", f"{tars}/*.tar", tars / "out", *options).status == 0
    dataset = mdsx.Dataset(tars / "out", cache=tars / "cache")
    assert [sample["meta"] for sample in dataset] == [None] * 30
    assert len(list((tars / "out").glob("part-0000[012]/shard.*.mdsx.zst"))) > 3


def test_an_error_prints_one_line_with_status_1(run: Run, tars: Path) -> None:
    write_tar(tars / "x-0001.tar", [("1.txt", b"a"), ("1.cls", b"cat")])
    status, _, err = run("convert", "tar", f"{tars}/*.tar", tars / "out")
    assert status == 1
    assert err == (
        f"mdsx: error: {tars}/x-0001.tar: member '1.cls', offset 1024: does not fit column 'cls' of type int64: "
        "'cat' is not an integer; --column 'cls=str' would accept it\n"
    )
    assert not (tars / "out" / "index.json").exists()


def test_skipping_reports_each_error_and_ends_with_status_3(run: Run, tars: Path) -> None:
    write_tar(tars / "x-0001.tar", [("1.txt", b"a"), ("1.cls", b"cat"), ("2.txt", b"b"), ("2.cls", b"2"), ("3", b"")])
    status, out, err = run("convert", "tar", f"{tars}/*.tar", tars / "out", "--on-error", "skip", "--json")
    assert status == 3
    assert [line.split(": ")[:2] for line in err.splitlines()] == [["mdsx", "skipped"]] * 2
    output = json.loads(out)
    assert (output["samples"], output["skipped"]) == (21, 2)
    assert [(error["file"], error["place"]) for error in output["errors"]] == [
        (f"{tars}/x-0001.tar", "member '1.cls', offset 1024"),
        (f"{tars}/x-0001.tar", "member '3', offset 4096"),
    ]
    again = run("convert", "tar", f"{tars}/*.tar", tars / "out", "--on-error", "skip", "--json")
    assert (again.status, again.err) == (status, err)
    assert json.loads(again.out) == {**output, "already": True}
    text = run("convert", "tar", f"{tars}/*.tar", tars / "out", "--on-error", "skip").out
    assert text == f"{tars}/out was finished before: 21 samples, 2 skipped; nothing to do\n"


def test_options_for_names_and_nan_reach_the_conversion(run: Run, tmp_path: Path) -> None:
    members = [
        ("a/LICENSE", b""),
        ("a/1.x.JPG", b"\xff\xd8\xff"),
        ("a/1.x.json", b"[Infinity]"),
        ("a/2.x.webp", b"RIFF"),
    ]
    write_tar(tmp_path / "x.tar", [*members, ("a/2.x.json", b"[1]")])
    options = ["--key-until", "last-dot", "--rename", "Image=jpg;webp", "--drop", "LICENSE", "--nan", "null"]
    options += ["--column", "Image=bytes?", "--column", "JSON=json"]
    assert run("convert", "tar", tmp_path / "x.tar", tmp_path / "out", *options).status == 0
    assert list(mdsx.Dataset(tmp_path / "out")) == [
        {"__key__": "a/1.x", "Image": b"\xff\xd8\xff", "json": [None]},
        {"__key__": "a/2.x", "Image": b"RIFF", "json": [1]},
    ]


def test_warnings_go_to_stderr_and_json(run: Run, tmp_path: Path) -> None:
    write_tar(tmp_path / "x.tar", [(f"cam.{number}.txt", b"") for number in range(9)])
    status, out, err = run("convert", "tar", tmp_path / "x.tar", tmp_path / "out", "--json")
    (warning,) = json.loads(out)["warnings"]
    assert (status, err) == (0, f"mdsx: warning: {warning}\n")
    assert "--key-until last-dot" in warning


@pytest.mark.parametrize("option", [["--nan", "zero"], ["--on-error", "stop"], ["--key-until", "dot"], ["--skip-bad"]])
def test_an_invalid_option_is_status_2(run: Run, tars: Path, option: list[str]) -> None:
    assert run("convert", "tar", f"{tars}/*.tar", tars / "out", *option).status == 2


def test_progress_is_shown_only_on_a_terminal(tars: Path) -> None:
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "mdsx", "convert", "tar", f"{tars}/*.tar"]
    process = subprocess.Popen([*command, tars / "out"], stdout=subprocess.DEVNULL, stderr=theirs)
    os.close(theirs)
    shown = b""
    try:
        while piece := os.read(ours, 4096):
            shown += piece
    except OSError:  # how a terminal without a program ends
        pass
    os.close(ours)
    assert process.wait() == 0
    assert b"converting" in shown
    assert b"30 samples" in shown
    quiet = subprocess.run([*command, tars / "out2"], capture_output=True, check=True)
    assert quiet.stderr == b""


# --- interrupted


def content(folder: Path) -> dict[str, str]:
    paths = [path for path in folder.rglob("*") if path.is_file()]
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in paths}


def command(tars: Path, out: Path, processes: str) -> list[str]:
    convert = [sys.executable, "-m", "mdsx", "convert", "tar"]
    return [*convert, f"{tars}/*.tar", str(out), "--shard-size", "20KB", "--num-workers", processes]


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tars whose conversion can be interrupted after its first shard."""
    folder = tmp_path_factory.mktemp("large")
    for tar in range(4):
        write_tar(folder / f"x-{tar:04d}.tar", sample_members(range(2000 * tar, 2000 * tar + 2000)))
    return folder


@cache
def undisturbed(tars: Path, processes: str) -> dict[str, str]:
    out = tars / f"undisturbed-{processes}"
    subprocess.run(command(tars, out, processes), check=True, capture_output=True)
    return content(out)


class Job:
    """A conversion in a process of its own."""

    def __init__(self, tars: Path, out: Path, processes: str) -> None:
        self.out = out
        self._command = command(tars, out, processes)
        self.expected = undisturbed(tars, processes)

    def started(self) -> subprocess.Popen[str]:
        pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "start_new_session": True}
        # Tests in a shell's background ignore SIGINT, and so would their child processes.
        pipes["preexec_fn"] = lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)
        return subprocess.Popen(self._command, text=True, **pipes)

    def workers(self, process: subprocess.Popen[str]) -> list[int]:
        """Return this process's children, as the kernel lists them."""
        try:
            children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
            return [int(child) for child in children if b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes()]
        except FileNotFoundError:  # the process has just ended
            return []

    def interrupt(self, number: int) -> tuple[int, str]:
        """Start it and send the signal after its first shard. Return status and stderr once all processes ended."""
        with self.started() as process:
            while process.poll() is None and not any(self.out.rglob("shard.*.mdsx")):
                time.sleep(0.001)
            if number == signal.SIGINT:
                os.killpg(process.pid, number)  # as a terminal does, to all processes
            else:
                process.send_signal(number)
            _, err = process.communicate()  # ends with the last process that holds the pipes
        assert not (self.out / "index.json").exists()
        return process.returncode, err

    def finish(self) -> dict[str, str]:
        subprocess.run(self._command, check=True, capture_output=True)
        return content(self.out)


@pytest.mark.slow_if("processes == '2'")
@pytest.mark.parametrize("processes", ["1", "2"])
def test_the_same_command_continues_after_ctrl_c(large: Path, tmp_path: Path, processes: str) -> None:
    job = Job(large, tmp_path / "out", processes)
    assert job.interrupt(signal.SIGINT) == (130, "mdsx: interrupted; the same command continues from here\n")
    assert job.finish() == job.expected


@pytest.mark.slow
def test_the_same_command_continues_after_a_killed_parent(large: Path, tmp_path: Path) -> None:
    """See tests/transfer/converting/test_conversion.py for a conversion in one process."""
    job = Job(large, tmp_path / "out", "2")
    assert job.interrupt(signal.SIGKILL) == (-signal.SIGKILL, "")
    assert job.finish() == job.expected


@pytest.mark.slow
def test_the_same_command_continues_after_a_killed_worker(large: Path, tmp_path: Path, often: Often) -> None:
    """The kill may come while the worker receives a task or sends a result."""
    job, rng, kills = Job(large, tmp_path / "out", "2"), random.Random(1), 0
    while kills < often(2, long=20):
        with job.started() as process:
            while process.poll() is None and not (any(job.out.rglob("shard.*")) if kills % 2 else job.workers(process)):
                time.sleep(0.001)
            time.sleep(rng.uniform(0, 0.05))
            for worker in job.workers(process)[-1:]:  # none if everything was done before
                os.kill(worker, signal.SIGKILL)
            _, err = process.communicate()  # ends with the last process that holds the pipes
        if process.returncode:
            kills += 1
            assert process.returncode == 1
            assert err == "mdsx: error: a worker died with exit code -9; out of memory? rerun\n"
            assert not (job.out / "index.json").exists()
            assert job.finish() == job.expected
        shutil.rmtree(job.out)


def test_json_lines_are_converted_with_their_options(run: Run, tmp_path: Path) -> None:
    lines = [{"a=b": 1, "K": math.nan, "c": 2}, {"a=b": 2, "K": 0.5, "c": "x"}]
    (tmp_path / "x.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    options = ("--nan", "null", "--column", "K=float32?", "--column", "a=b=uint8", "--rename", "c2=c", "--drop", "d")
    status, out, err = run("convert", "jsonl", tmp_path / "x.jsonl", tmp_path / "out", *options)
    assert (status, err) == (
        0,
        f"mdsx: warning: {tmp_path}/x.jsonl: --drop 'd': none of the first samples has this key\n",
    )
    assert out.splitlines()[1:4] == ["  a=b  uint8", "  K    float32?", "  c2   json"]
    assert list(mdsx.Dataset(tmp_path / "out")) == [{"a=b": 1, "K": None, "c2": 2}, {"a=b": 2, "K": 0.5, "c2": "x"}]
