"""Ray Data writes and reads a dataset, as the example does. The other tests with Ray are marked `engines`."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

import mdsx
from tests.engines.ray.scenarios import ROOT

EXAMPLE = ROOT / "examples" / "ray_write.py"


@pytest.mark.slow
def test_the_example_writes_in_order_and_reads(ray_python: Path, tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "RAY_USAGE_STATS_ENABLED": "0"}
    command = [str(ray_python), str(EXAMPLE), str(tmp_path)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240, check=False)
    assert not done.returncode, done.stderr[-3000:]
    printed = [line for line in done.stdout.splitlines() if line.startswith(("10000", "in order", "read by"))]
    assert printed == [
        "10000 samples in 3 shards",
        "in order: True",
        "read by Ray: 10000 [{'id': 0, 'text': 'sample 0'}, {'id': 1, 'text': 'sample 1'}]",
    ]
    assert mdsx.verify(tmp_path / "corpus").ok


def test_without_ray_an_error_says_what_to_install(tmp_path: Path) -> None:
    with pytest.raises(mdsx.UsageError, match=r"pip install 'mdsx\[ray\]'"):
        mdsx.engines.ray.Datasink(tmp_path)
    with pytest.raises(mdsx.UsageError, match=r"pip install 'mdsx\[ray\]'"):
        mdsx.engines.ray.read(tmp_path)


def test_the_page_has_the_examples_lines() -> None:
    page = (ROOT / "docs" / "engines.md").read_text(encoding="utf-8")
    assert "ray.data.DataContext.get_current().execution_options.preserve_order = True" in page
    assert "preserve_order = True" in EXAMPLE.read_text(encoding="utf-8")
