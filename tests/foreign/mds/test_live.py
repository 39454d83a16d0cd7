"""Files that mosaicml-streaming writes now, in an environment of its own, are read like the golden ones."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

import mdsx
from tests.foreign.mds import test_golden
from tests.foreign.mds.notation import as_noted
from tools.environment import PeerEnvironment

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the same datasets as `golden/`."""
    environment, folder = PeerEnvironment("mosaicml"), tmp_path_factory.mktemp("written")
    environment.install()
    command = [str(environment.python), str(test_golden.GOLDEN / "write.py"), str(folder)]
    variables = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return folder


def test_every_dataset_of_the_live_package_is_read(written: Path, tmp_path: Path) -> None:
    expected = json.loads((written / "expected.json").read_text())
    assert list(expected) == test_golden.NAMES
    for name, values in expected.items():
        columns = ["id"] if name == "encoding-pkl" else None
        dataset = mdsx.Dataset(written / name, columns=columns, cache=tmp_path / "cache")
        want = expected["mixed"][:values] if isinstance(values, int) else values
        assert [as_noted(sample) for sample in dataset] == want, name


def test_the_golden_files_are_what_it_writes(written: Path) -> None:
    encoded_by_pillow = ("encoding-jpeg/", "encoding-png/", "encoding-list-")
    for path in test_golden.GOLDEN.rglob("*.mds"):
        if any(name in str(path) for name in encoded_by_pillow):  # whose versions differ
            continue
        assert path.read_bytes() == (written / path.relative_to(test_golden.GOLDEN)).read_bytes(), path
