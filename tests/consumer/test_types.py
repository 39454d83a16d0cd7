"""The public types: a user's program passes strict mypy and pyright, and its mistakes do not."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
TIMEOUT = 280


def mypy(file: Path, _: Path) -> dict[int, str]:
    """Return the errors of strict mypy by line."""
    command = [sys.executable, "-m", "mypy", "--strict", "--output", "json", str(file)]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=TIMEOUT)
    assert found.returncode in (0, 1), found.stderr
    errors = [json.loads(line) for line in found.stdout.splitlines() if line.startswith("{")]
    return {error["line"]: error["message"] for error in errors if error["severity"] == "error"}


def pyright(file: Path, tmp_path: Path) -> dict[int, str]:
    """Return the errors of strict pyright by line. basedpyright is pyright in a wheel, which downloads nothing."""
    strict = {"include": [str(file)], "typeCheckingMode": "strict", "pythonVersion": "3.11", "extraPaths": [str(ROOT)]}
    project = tmp_path / "pyrightconfig.json"
    project.write_text(json.dumps(strict))
    command = [sys.executable, "-m", "basedpyright", "--project", str(project), "--pythonpath", sys.executable,
               "--outputjson"]  # fmt: skip
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=TIMEOUT)
    assert found.returncode in (0, 1), found.stdout + found.stderr
    errors = json.loads(found.stdout)["generalDiagnostics"]
    return {error["range"]["start"]["line"] + 1: error["message"] for error in errors if error["severity"] == "error"}


CHECKERS = [mypy, pyright]


@pytest.mark.parametrize("check", CHECKERS)
def test_a_users_program_passes(check: Callable[[Path, Path], dict[int, str]], tmp_path: Path) -> None:
    assert check(HERE / "program.py", tmp_path) == {}


@pytest.mark.parametrize("check", CHECKERS)
def test_a_users_mistakes_are_found(check: Callable[[Path, Path], dict[int, str]], tmp_path: Path) -> None:
    file = HERE / "mistakes.py"
    wrong = [number for number, line in enumerate(file.read_text().splitlines(), 1) if line.endswith("# wrong")]
    assert sorted(check(file, tmp_path)) == wrong
