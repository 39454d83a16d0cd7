"""The page about shuffling: published figures are reproduced, its tables are those of the command."""

from __future__ import annotations

import re

import pytest

from tools import shuffling
from tools.shuffling import PAGE


@pytest.mark.parametrize(("held", "published"), [(100, 1.0000), (1_000, 0.9994), (10_000, 0.9482), (100_000, 0.0)])
def test_published_correlations_are_reproduced(held: int, published: float) -> None:
    found, _ = shuffling.measured(held)["buffer, as stored"]
    assert found == pytest.approx(published, abs=0.01 if held == 100_000 else 0.0005)
    assert f"{published:.4f}" == shuffling.PUBLISHED[held] or held == 100_000


def test_no_shuffle_holds_more_than_its_row_says() -> None:
    for held in shuffling.BUFFERS:
        for name, orders in shuffling.compared(held).items():
            assert name == "exact" or all(order.held <= held for order in orders), (held, name)


@pytest.mark.parametrize("name", shuffling.TABLES)
def test_tables_of_the_page_are_what_the_command_prints(name: str) -> None:
    found = re.search(f"<!-- shuffling: {name} -->\n(.*?)<!-- end of shuffling: {name} -->", PAGE.read_text(), re.S)
    assert found is not None
    assert found[1] == shuffling.TABLES[name]()


def test_the_page_has_every_table() -> None:
    assert re.findall("<!-- shuffling: (.*) -->\n[|]", PAGE.read_text()) == list(shuffling.TABLES)
