"""The diffusion example: images in batches of one shape, killed, and resumed on other ranks."""

from __future__ import annotations

import runpy
from collections import Counter
from pathlib import Path

import pytest

from tests.examples.runs import EXAMPLES, Programs, Start, killed


def write(url: str) -> None:
    runpy.run_path(str(EXAMPLES / "diffusion_buckets.py"))["write"](url)


@pytest.mark.slow
def test_buckets_of_images_resume_on_other_ranks_exactly_once(programs: Programs, tmp_path: Path) -> None:
    data = str(tmp_path / "data")
    programs.call(write, data)
    trained = programs.run("diffusion_buckets.py", data, tmp_path / "run", [Start(2, killed_in=18), Start(3)])
    *first, last = trained.statuses
    assert all(map(killed, first))
    assert set(last) == {0}
    assert trained.epochs == [Counter(range(1003))] * 2
