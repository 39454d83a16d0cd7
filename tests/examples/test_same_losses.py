"""A resumed training: on as many ranks the same losses to the last bit, on others the same samples in each step."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.examples.runs import Programs, Start, killed

pytestmark = pytest.mark.slow

SAMPLES = 1003


def test_losses_are_the_same_on_as_many_ranks(programs: Programs, data: str, tmp_path: Path) -> None:
    found = programs.compare("image_classifier.py", data, tmp_path, Start(2, killed_in=18), others=1)
    finished, first, *resumed = found.statuses
    assert killed(first)
    assert {status for statuses in (finished, *resumed) for status in statuses} == {0}
    assert all(len(losses) == 1 for _, losses in found.whole.values())  # each rank has the loss of all
    assert found.same == found.whole  # float.hex(): to the last bit

    assert found.epochs == [Counter(range(SAMPLES))] * 2
    assert found.other.keys() == found.whole.keys()
    for (numbers, (loss,)), (expected, (near,)) in zip(found.other.values(), found.whole.values(), strict=True):
        assert sorted(numbers) == sorted(expected)
        assert float.fromhex(loss) == pytest.approx(float.fromhex(near), rel=1e-3)
    losses = [float.fromhex(loss) for _, (loss,) in found.whole.values()]
    assert sum(losses[-5:]) < 0.8 * sum(losses[:5])  # it learns
