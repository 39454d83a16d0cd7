"""`mdsx tokenize`: what it prints, its exit status, and its options; after a kill, the same command continues."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import mdsx
from tests.cli.conftest import Run
from tests.transfer.converting.reruns import files
from tests.transfer.tokenizing.texts import END, documents, expected, lines, tokenizer_file, tokens


def test_prints_what_was_tokenized(run: Run, tmp_path: Path) -> None:
    path, tokenizer, out = lines(tmp_path / "a.jsonl", ["ba ko"] * 30), tokenizer_file(tmp_path), tmp_path / "out"
    command = ("tokenize", path, out, "--tokenizer", tokenizer, "--end-of-text", END, "--keep", "id")
    status, printed, errors = run(*command)
    count = sum(map(len, expected(tokenizer, ["ba ko"] * 30, end=0)))
    assert (status, errors) == (0, "")
    assert printed.splitlines() == [
        f"1 file, 1.48 kB, to {out}; columns:",
        "  tokens  uint16[*]",
        "  id      int64",
        f"30 samples in {out}: {count} tokens of 30 documents",
    ]
    assert tokens(out) == expected(tokenizer, ["ba ko"] * 30, end=0)
    assert run(*command).out == (
        f"{out} was finished before: 30 samples: {count} tokens of 30 documents; nothing to do\n"
    )


def test_rows_have_one_length_and_json_has_all_counts(run: Run, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("ba ko\n\nmi\n" * 10)
    command = ("tokenize", tmp_path / "a.txt", tmp_path / "out", "--tokenizer", "bytes", "--per", "line", "--rows", 8)
    status, printed, _ = run(*command, "--end-of-text", 256, "--dtype", "int32", "--json")
    assert status == 0
    assert json.loads(printed) == {
        "url": str(tmp_path / "out"),
        "samples": 11,
        "skipped": 0,
        "already": False,
        "columns": {"tokens": "int32[8]"},
        "tokens": 88,
        "documents": 20,
        "left_out": 2,
        "errors": [],
        "warnings": [],
    }
    assert tokens(tmp_path / "out")[0] == [*b"ba ko", 256, *b"mi"]
    again = json.loads(run(*command, "--end-of-text", 256, "--dtype", "int32", "--json").out)
    assert (again["already"], again["tokens"], again["documents"], again["left_out"]) == (True, 88, None, None)


def test_skips_are_printed_and_the_status_says_so(run: Run, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"body": "ba"}\n{"body": null}\n{\n{"body": "ko"}\n')
    given = ("tokenize", tmp_path / "a.jsonl", tmp_path / "out", "--tokenizer", "bytes", "--text-column", "body")
    status, _, errors = run(*given)
    assert status == 1
    assert f"mdsx: error: {tmp_path}/a.jsonl: line 3: the line is not JSON" in errors
    status, printed, errors = run(*given, "--on-error", "skip", "--num-workers", 1)
    assert status == 3
    assert printed.splitlines()[-1] == f"2 samples in {tmp_path}/out: 4 tokens of 2 documents, 2 skipped"
    assert [line.partition(", ")[0].partition(": the")[0] for line in errors.splitlines()] == [
        f"mdsx: skipped: {tmp_path}/a.jsonl: line 2",
        f"mdsx: skipped: {tmp_path}/a.jsonl: line 3",
    ]
    assert run(*given, "--on-error", "skip").status == 3


def test_the_other_options_reach_the_writer(run: Run, tmp_path: Path) -> None:
    path = lines(tmp_path / "corpus", documents(50))
    given = ("tokenize", path, tmp_path / "out", "--tokenizer", "bytes", "--kind", "jsonl")
    options = ("--keep", "id", "--column", "id=int16", "--compression", "zstd", "--shard-size", "2KB", "--nan", "null")
    assert run(*given, *options, "--begin-of-text", "<|beginoftext|>").status == 0
    dataset = mdsx.Dataset(tmp_path / "out")
    assert dataset.columns == {"tokens": "uint16[*]", "id": "int16"}
    assert dataset[0]["tokens"][0] == 257
    assert len([*(tmp_path / "out").rglob("shard.*.zst")]) > 1
    status, _, errors = run(*given, *options)
    assert (status, "already holds a dataset" in errors) == (1, True)
    assert run(*given, *options, "--overwrite").status == 0


def test_one_argument_and_no_tokenizer_are_wrong_usage(run: Run, tmp_path: Path) -> None:
    assert run("tokenize", tmp_path, "--tokenizer", "bytes").status == 2
    status, _, errors = run("tokenize", tmp_path, tmp_path / "out")
    assert (status, "--tokenizer" in errors) == (2, True)


@pytest.mark.parametrize("option", ["--begin-of-text", "--end-of-text"])
def test_a_token_with_too_many_digits_is_an_error(run: Run, tmp_path: Path, option: str) -> None:
    given = ("tokenize", lines(tmp_path / "a.jsonl", ["ba"]), tmp_path / "out", "--tokenizer", "bytes")
    status, _, errors = run(*given, option, "9" * 5000)
    assert (status, "mdsx: error: a token's number has too many digits (found '999" in errors) == (1, True)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_the_same_command_continues_after_a_killed_parent(tmp_path: Path, number: int) -> None:
    long = " ".join(documents(300))
    for part in range(4):  # each is a unit
        lines(tmp_path / f"{part}.jsonl", [f"{number} {long}" for number in range(60)])
    sources, out = f"{tmp_path}/?.jsonl", f"{tmp_path}/out"
    command = [sys.executable, "-m", "mdsx", "tokenize", sources, out, "--shard-size", "16KB", "--tokenizer",
                str(tokenizer_file(tmp_path)), "--end-of-text", END, "--num-workers", "2"]  # fmt: skip
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        while process.poll() is None and not any((tmp_path / "out").rglob("shard.*.mdsx")):
            time.sleep(0.001)
        process.send_signal(number)
        process.communicate(timeout=120)
    assert process.returncode != 0
    assert not (tmp_path / "out" / "index.json").exists()
    assert subprocess.run(command, check=False, capture_output=True, timeout=120).returncode == 0
    assert len([*(tmp_path / "out").glob("part-*")]) == 4
    mdsx.tokenize(sources, tmp_path / "right", tokenizer_file(tmp_path), end_of_text=END, shard_size="16KB")
    assert files(tmp_path / "out") == files(tmp_path / "right")
