"""Batches of one shape: what docs/batches.md promises of them is so, and its tables are those of the command."""

from __future__ import annotations

import re

import numpy as np

from tools import buckets
from tools.pretrain import PAGE, planning


def test_few_samples_are_in_short_batches() -> None:
    """With 20 buckets, 1,024 samples a step and windows of 2^20 positions: 1.2 %."""
    window = buckets.grouped(20, 2**20)[0]
    sizes = np.diff(window.edges)
    short = sizes < buckets.STEP
    assert short.sum() <= 20
    assert 0.005 < sizes[short].sum() / 2**20 < 0.015


def test_a_window_of_buckets_is_planned_soon_and_in_little_memory() -> None:
    seconds, most = planning(buckets.grouped(40, 2**20))
    assert seconds < 1
    assert most < 250e6


def test_most_samples_are_read_by_the_ranks_of_their_lanes() -> None:
    shares = re.findall(r"([0-9.]+)%", buckets.lanes_table())
    assert len(shares) == 4
    assert max(map(float, shares)) < 10


def test_the_page_has_every_table_of_buckets() -> None:
    assert re.findall("<!-- buckets: (.*) -->\n[|]", PAGE.read_text()) == list(buckets.TABLES)
