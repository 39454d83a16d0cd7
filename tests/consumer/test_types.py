"""The public types: a user's program passes strict pyright, and its mistakes do not.

The check's types step shows the same for strict mypy, since each mistake has a `type: ignore`, which must be needed.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
TIMEOUT = 280


Errors = dict[str, dict[int, str]]
"""The messages of each file by line."""


def pyright(files: Sequence[Path], tmp_path: Path) -> Errors:
    """Return the errors of strict pyright. basedpyright is pyright in a wheel, which downloads nothing."""
    project = tmp_path / "pyrightconfig.json"
    settings = {
        "include": list(map(str, files)),
        "typeCheckingMode": "strict",
        "enableTypeIgnoreComments": False,
        "pythonVersion": "3.11",
        "extraPaths": [str(ROOT)],
    }
    project.write_text(json.dumps(settings))
    command = [sys.executable, "-m", "basedpyright", "--project", str(project), "--pythonpath", sys.executable,
               "--outputjson"]  # fmt: skip
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=TIMEOUT)
    assert found.returncode in (0, 1), found.stdout + found.stderr
    errors: Errors = {}
    for error in json.loads(found.stdout)["generalDiagnostics"]:
        if error["severity"] == "error":
            errors.setdefault(Path(error["file"]).name, {})[error["range"]["start"]["line"] + 1] = error["message"]
    return errors


def test_a_users_program_passes_and_mistakes_are_found(tmp_path: Path) -> None:
    mistakes = HERE / "mistakes.py"
    wrong = [number for number, line in enumerate(mistakes.read_text().splitlines(), 1) if line.endswith("# wrong")]
    found = pyright([HERE / "program.py", mistakes], tmp_path)
    assert found.pop("program.py", {}) == {}
    assert sorted(found.pop("mistakes.py")) == wrong
    assert not found
