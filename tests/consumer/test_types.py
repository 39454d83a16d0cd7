"""The public types: a user's program passes strict mypy and pyright, and its mistakes do not."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
TIMEOUT = 280


Errors = dict[str, dict[int, str]]
"""The messages of each file by line."""


def mypy(files: Sequence[Path], _: Path) -> Errors:
    """Return the errors of strict mypy."""
    command = [sys.executable, "-m", "mypy", "--strict", "--output", "json", *map(str, files)]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=TIMEOUT)
    assert found.returncode in (0, 1), found.stderr
    errors = [json.loads(line) for line in found.stdout.splitlines() if line.startswith("{")]
    return by_file((Path(error["file"]), error["line"], error) for error in errors)


def pyright(files: Sequence[Path], tmp_path: Path) -> Errors:
    """Return the errors of strict pyright. basedpyright is pyright in a wheel, which downloads nothing."""
    include = list(map(str, files))
    strict = {"include": include, "typeCheckingMode": "strict", "pythonVersion": "3.11", "extraPaths": [str(ROOT)]}
    project = tmp_path / "pyrightconfig.json"
    project.write_text(json.dumps(strict))
    command = [sys.executable, "-m", "basedpyright", "--project", str(project), "--pythonpath", sys.executable,
               "--outputjson"]  # fmt: skip
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=TIMEOUT)
    assert found.returncode in (0, 1), found.stdout + found.stderr
    errors = json.loads(found.stdout)["generalDiagnostics"]
    return by_file((Path(error["file"]), error["range"]["start"]["line"] + 1, error) for error in errors)


def by_file(found: Iterable[tuple[Path, int, dict[str, str]]]) -> Errors:
    errors: Errors = {}
    for file, line, error in found:
        if error["severity"] == "error":
            errors.setdefault(file.name, {})[line] = error["message"]
    return errors


@pytest.mark.parametrize("check", [mypy, pyright])
def test_a_users_program_passes_and_mistakes_are_found(
    check: Callable[[Sequence[Path], Path], Errors], tmp_path: Path
) -> None:
    mistakes = HERE / "mistakes.py"
    wrong = [number for number, line in enumerate(mistakes.read_text().splitlines(), 1) if line.endswith("# wrong")]
    found = check([HERE / "program.py", mistakes], tmp_path)
    assert found.pop("program.py", {}) == {}
    assert sorted(found.pop("mistakes.py")) == wrong
    assert not found
