"""A simulation fetches exactly what a real run fetches."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import mdsx
from mdsx.datasets import excerpt_of
from mdsx.shards import View
from mdsx.simulate.stored import stored_in
from tools.simulated.planned import ReadShards
from tools.simulated.run import PAGE, compare
from tools.simulated.settings import SETTINGS


@pytest.mark.slow
def test_simulated_bytes_and_requests_equal_measured_ones() -> None:
    """Two ranks that share a cache, and samples of variable size in compressed shards."""
    setting = replace(
        SETTINGS[2], samples=1500, shard_samples=64, ranks=2, step=0.001, rate=8e6, rtt=0.01, compression="zstd"
    )
    real, simulated = compare(setting)
    assert real.counts == simulated.counts
    assert real.whole == real.distinct >= 20
    assert {len(waits) for waits in real.waits + simulated.waits} == {1500 // 16}
    assert simulated.waited > simulated.first > 0


def test_the_index_says_which_ranges_hold_samples_of_a_fixed_size(tmp_path: Path) -> None:
    setting = replace(SETTINGS[0], samples=300)
    setting.write(tmp_path)
    view = View([excerpt_of(mdsx.Dataset(tmp_path))])
    stored = stored_in(view)
    read = ReadShards.of(stored, view.parts[0].shards.index, tmp_path)
    for samples in ([0], [3, 4, 90], [127], [5, 1]):
        wanted = np.array(samples)
        assert [*stored.rounds(0, wanted, first=True)] == [*read.rounds(0, wanted, first=True)]


def test_the_page_has_each_setting_and_the_command() -> None:
    page = PAGE.read_text()
    assert "python3 -m tools simulated" in page
    for setting in SETTINGS:
        assert page.count(f"| {setting.title} |") == 2
