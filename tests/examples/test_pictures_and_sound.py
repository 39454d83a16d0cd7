"""The examples that decode: killed, and resumed on other ranks, they train on each sample and evaluate each once."""

from __future__ import annotations

import importlib
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.examples.runs import Programs, Start, killed

pytestmark = pytest.mark.slow

SAMPLES, VALID = 1003, 101


def write(program: str, url: str) -> None:
    """Write the data of a program, where the modules of examples/ can be imported."""
    module: Any = importlib.import_module(program)
    module.write(url)


@pytest.mark.parametrize("program", ["photo_classifier", "speech_classifier"])
def test_each_sample_is_trained_on_and_evaluated_once(programs: Programs, program: str, tmp_path: Path) -> None:
    data = str(tmp_path / "data")
    programs.call(write, program, data)
    trained = programs.run(f"{program}.py", data, tmp_path / "run", [Start(2, killed_in=18), Start(3)])
    first, last = trained.statuses
    assert killed(first)
    assert set(last) == {0}, trained.printed
    assert trained.epochs == [Counter(range(SAMPLES))] * 2
    found = re.search(r"^(\d+) of (\d+) samples are right$", trained.printed, re.MULTILINE)
    assert found is not None
    assert int(found[2]) == VALID
    assert int(found[1]) > 0.8 * VALID  # it learns


def test_random_crops_are_the_same_after_a_resume(programs: Programs, tmp_path: Path) -> None:
    """So are the losses, to the last bit."""
    data = str(tmp_path / "data")
    programs.call(write, "photo_classifier", data)
    found = programs.compare("photo_classifier.py", data, tmp_path, Start(2, killed_in=18), others=1)
    assert found.same == found.whole
    for (numbers, (loss,)), (expected, (near,)) in zip(found.other.values(), found.whole.values(), strict=True):
        assert sorted(numbers) == sorted(expected)
        assert float.fromhex(loss) == pytest.approx(float.fromhex(near), rel=1e-3)
