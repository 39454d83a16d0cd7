"""What the tests of the commands share: a dataset, and a function that runs a command in this process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from typer.testing import CliRunner

import mdsx
from mdsx.cli.app import app


class Ran(NamedTuple):
    status: int
    out: str
    err: str


Run = Callable[..., Ran]


@pytest.fixture
def run() -> Run:
    """Runs `mdsx` with these arguments."""

    def run(*arguments: object) -> Ran:
        result = CliRunner().invoke(app, [str(argument) for argument in arguments])
        assert result.exception is None or isinstance(result.exception, SystemExit)  # not a traceback
        return Ran(result.exit_code, result.stdout, result.stderr)

    return run


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    """300 samples in several shards."""
    path = tmp_path / "dataset"
    with mdsx.Writer(path, {"name": "str", "label": "int64?", "bits": "bytes"}, shard_size=4000) as out:
        for number in range(300):
            out.write(
                {"name": f"sample {number}", "label": number if number % 2 else None, "bits": bytes([number % 256])}
            )
    return path
