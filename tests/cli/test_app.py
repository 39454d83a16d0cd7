"""The command as a whole: help, exit status, mistakes, interruption, and the cost of a start."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

import mdsx
from mdsx.cli.app import app
from tests.cli.conftest import Run
from tools.servers.s3 import S3Server


def commands(command: Any, *names: str) -> Iterator[list[str]]:
    """Yield the names of a command and of all below it."""
    yield list(names)
    for name, below in getattr(command, "commands", {}).items():
        yield from commands(below, *names, name)


COMMANDS = list(commands(typer.main.get_command(app)))


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_each_command_has_help_with_an_example(run: Run, command: list[str]) -> None:
    status, out, err = run(*command, "--help")
    assert (status, err) == (0, "")
    assert f"Example: mdsx {' '.join(command)}".strip() in out


def test_help_shows_no_type_for_flags(run: Run) -> None:
    for command in ([], ["info"], ["convert", "tar"]):
        assert "bool" not in run(*command, "--help").out.lower()


WRONG = [
    "nonsense",
    "info",
    "info a b",
    "cat x --start -1",
    "cat x --count many",
    "verify x -y",
    "convert tar only",
    "cache nonsense",
    "cache warm",
    "doctor",
    "doctor x --world-size 0",
]


@pytest.mark.parametrize("line", WRONG)
def test_a_wrong_command_line_exits_with_status_2(run: Run, line: str) -> None:
    status, out, err = run(*line.split())
    assert (status, out) == (2, "")
    assert "Usage: mdsx" in err


def test_a_conversion_without_an_output_is_explained(run: Run) -> None:
    assert "Expected SRC... OUT." in " ".join(run("convert", "tar", "only.tar").err.split())


MISTAKES = [
    ["info"],
    ["verify"],
    ["repair"],
    ["cat"],
    ["merge"],
    ["convert", "tar", "missing.tar"],
    ["cache", "warm"],
    ["cache", "show", "--cache"],
]


@pytest.mark.parametrize("command", MISTAKES)
def test_a_users_mistake_prints_one_line_with_status_1(run: Run, tmp_path: Path, command: list[str]) -> None:
    status, out, err = run(*command, tmp_path / "nothing")
    assert (status, out) == (1, "")
    assert err.startswith("mdsx: error: ")
    assert err.count("\n") == 1


def test_an_unknown_scheme_is_named(run: Run) -> None:
    assert "there is no storage for ftp://" in run("info", "ftp://host/x").err


def test_mdsx_and_python_m_mdsx_are_the_same(dataset: Path) -> None:
    mdsx_command = Path(sys.executable).with_name("mdsx")
    answers = [
        subprocess.run([*command, "info", dataset], capture_output=True, text=True, check=True).stdout
        for command in ([mdsx_command], [sys.executable, "-m", "mdsx"])
    ]
    assert answers[0] == answers[1] != ""


def test_version_prints_the_version(run: Run) -> None:
    assert run("--version").out == f"mdsx {mdsx.__version__}\n"


def test_help_loads_nothing_heavy() -> None:
    code = "import sys, mdsx.cli.app; print({'numpy', 'boto3', 'torch', 'zstandard', 'msgpack'} & sys.modules.keys())"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "set()\n"


def test_a_closed_pipe_prints_no_error(dataset: Path) -> None:
    command = f"{sys.executable} -m mdsx cat {dataset} --json --count 300 | head -n 1"
    result = subprocess.run(command, shell=True, capture_output=True, text=True, check=True, env={**os.environ})
    assert (result.stdout.count("\n"), result.stderr) == (1, "")


def test_commands_take_storage_options(run: Run, s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:7")  # where no server listens, in any test
    commands = [["info"], ["cat"], ["verify"], ["repair"], ["merge"], ["convert", "tar", "s3://bucket/x.tar"]]
    commands += [["cache", "warm"]]
    for command in commands:
        options = ["--storage-option", "connect_timeout=0"]
        if command[0] == "convert":
            options += ["--source-option", "connect_timeout=0"]
        status, _, err = run(*command, "s3://bucket/data", *options)
        assert status == 1
        assert "1 try, on first contact" in err
    assert run("info", "s3://bucket/data", "--storage-option", "connect_timeout=-1").status == 1
    assert run("info", "s3://bucket/data", "--storage-option", "connect_timeout").status == 2
