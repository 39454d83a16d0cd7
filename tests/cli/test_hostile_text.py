"""No command passes a stranger's control characters on to the terminal, and what --json prints stays JSON."""

from __future__ import annotations

import ast
import io
import json
import re
import tarfile
from collections.abc import Sequence
from pathlib import Path

import pytest

import mdsx
from mdsx import cli
from mdsx.errors import CorruptError, visible
from tests.cli.conftest import Ran, Run
from tests.foreign.mds import plain

HOSTILE = "\x1b]0;owned\x07\x1b[31m\x9b31m\u202e\u2066\r\x7f"
CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    """A folder with a dataset, an MDS dataset, a tar, JSON lines and other files whose names and values are hostile."""
    with mdsx.Writer(tmp_path / "ds", {"text": "str", "tree": "json"}, metadata={HOSTILE: HOSTILE}) as out:
        out.write({"text": HOSTILE, "tree": {HOSTILE: HOSTILE}})
    plain.write_dataset(tmp_path / "mds", {"c\u202e\u2066": "str"}, [[{"c\u202e\u2066": HOSTILE}]])
    (tmp_path / "tars").mkdir()
    with tarfile.open(tmp_path / "tars" / "a.tar", "w") as tar:
        member = tarfile.TarInfo(f"0{HOSTILE}.txt")
        member.size = 2
        tar.addfile(member, io.BytesIO(b"\xff\xfe"))
    (tmp_path / "lines.jsonl").write_text('{"a": 1}\n{"a": "\\u001b\x9b", "b\u202e\x9b": 1}\n')
    (tmp_path / "odd").mkdir()
    (tmp_path / "odd" / f"a{HOSTILE}b.bin").write_bytes(b"x")
    (tmp_path / "cache" / ("a" * 32)).mkdir(parents=True)
    (tmp_path / "cache" / "lock").touch()
    (tmp_path / "cache" / f"x{HOSTILE}").touch()
    (tmp_path / "cache" / ("a" * 32) / ("b" * 32 + ".mdsx")).write_bytes(b"x")
    (tmp_path / "cache" / ("a" * 32) / "from.s3:%1b%5d0;owned%07").touch()
    return tmp_path


COMMANDS: Sequence[tuple[str, ...]] = [
    ("cat", "ds"),
    ("info", "ds"),
    ("verify", "ds"),
    ("cat", "mds"),
    ("info", "mds"),
    ("verify", "mds"),
    ("doctor", "odd", "--cache", "cache"),
    ("cache", "show", "--cache", "cache"),
    ("export", "jsonl", "ds", "odd"),
    ("export", "parquet", "ds", "out"),
    ("index", "tar", "tars"),
    ("convert", "tar", "tars/a.tar", "out"),
    ("convert", "jsonl", "lines.jsonl", "out"),
]


def in_folder(run: Run, folder: Path, command: tuple[str, ...], *more: str) -> Ran:
    names = ("ds", "mds", "odd", "out", "tars", "tars/a.tar", "lines.jsonl", "cache")
    return run(*(folder / word if word in names and at else word for at, word in enumerate(command)), *more)


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_no_command_prints_control_characters(run: Run, hostile: Path, command: tuple[str, ...]) -> None:
    ran = in_folder(run, hostile, command)
    assert ran.out or ran.err
    assert not CONTROLS.findall(ran.out + ran.err)


@pytest.mark.parametrize(
    "command", [command for command in COMMANDS if command[0] not in ("cache", "index")][:7], ids=" ".join
)
def test_json_stays_json_without_control_characters(run: Run, hostile: Path, command: tuple[str, ...]) -> None:
    ran = in_folder(run, hostile, command, "--json")
    assert [json.loads(line) for line in ran.out.splitlines()]
    assert not CONTROLS.findall(ran.out + ran.err)


def test_json_keeps_the_value(run: Run, hostile: Path) -> None:
    assert json.loads(run("cat", hostile / "ds", "--json").out) == {"text": HOSTILE, "tree": {HOSTILE: HOSTILE}}


def test_errors_show_control_characters_as_escapes() -> None:
    error = CorruptError(f"bad\n{HOSTILE}", file=f"s3://bucket/{HOSTILE}", found=HOSTILE)
    assert not CONTROLS.findall(str(error))
    assert "\\u001b]0;owned\\u0007" in str(error)


def test_visible_changes_nothing_else() -> None:
    text = "a\tb\nä \u05d0\u05d1 \u0627 \U0001f469\u200d\U0001f52c \u200c"
    assert visible(text) == text


def test_commands_print_through_one_function() -> None:
    folder = Path(cli.__file__).parent
    calls = [
        (path.name, node.lineno)
        for path in folder.glob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "print"
    ]
    assert [name for name, _ in calls] == ["output.py"]
