"""Rows of pretraining: what docs/batches.md promises of them is so, and its tables are those of the command."""

from __future__ import annotations

import re

import numpy as np
import pytest

from mdsx.order import Balance
from tools import pretrain
from tools.pretrain import PAGE, grouped


@pytest.mark.parametrize("capacity", [2048, 131072])
@pytest.mark.parametrize("lanes", [8, 64, 512])
@pytest.mark.parametrize("sigma", [1, 2])
def test_concatenated_rows_are_full(capacity: int, lanes: int, sigma: float) -> None:
    assert pretrain.fill_of(grouped("concat", capacity, lanes, sigma), 1) >= 0.999


def test_rows_of_a_million_documents_are_full() -> None:
    assert pretrain.fill_of(grouped("concat", 32768, 64, 1)) >= 0.999


def test_a_window_is_planned_soon_and_in_little_memory() -> None:
    seconds, most = pretrain.planning(grouped("concat", 131072, 512, 1))
    assert seconds < 0.5
    assert most < 300e6


def test_rows_of_a_document_crowd_together_in_few_lanes() -> None:
    found = [pretrain.crowding(grouped("concat", 2048, lanes, 1), 512) for lanes in (8, 64, 512)]
    assert found[0] > 0.3 > 0.15 > found[1] > 0.01 > found[2]


def test_balance_costs_little_planning() -> None:
    groups = grouped("concat", pretrain.BALANCED, pretrain.BALANCED_LANES, 1)
    window = groups[0]
    planned = min(pretrain.thread_seconds(lambda: groups[0]) for _ in range(9)) / len(window)
    assert pretrain.dealing_seconds(window, 4 * pretrain.RANKS, pretrain.NODE) < 0.05 * planned


@pytest.mark.parametrize("own", [4, 8])
def test_no_dealing_is_below_the_bound(own: int) -> None:
    groups = grouped("concat", pretrain.BALANCED, pretrain.BALANCED_LANES, 1, 700_000 * own // 4)
    *found, least = pretrain.balanced(groups, Balance(12 * 4096, 1), own)
    without, node, job = (float(each.split(",")[0]) for each in found)
    assert 1 <= float(least) <= job <= node < without
    assert node <= {4: 1.10, 8: 1.05}[own]


def test_lengths_are_as_the_page_says() -> None:
    assert np.median(pretrain.documents(1)) == pytest.approx(1000, rel=0.01)


def test_the_page_has_every_table() -> None:
    assert re.findall("<!-- pretrain: (.*) -->\n[|]", PAGE.read_text()) == [
        "fill",
        "crowding",
        "planning",
        "balance",
        "cost",
    ]
    assert set(pretrain.TABLES) == {"fill", "crowding", "planning", "balance", "cost"}


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(set(pretrain.TABLES) - set(pretrain.TIMED)))
def test_tables_of_the_page_are_what_the_command_prints(name: str) -> None:
    found = re.search(f"<!-- pretrain: {name} -->\n(.*?)<!-- end of pretrain: {name} -->", PAGE.read_text(), re.S)
    assert found is not None
    assert found[1] == pretrain.TABLES[name]()
