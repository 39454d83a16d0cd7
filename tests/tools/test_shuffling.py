"""The page about shuffling: published figures are reproduced, its tables are those of the command, pictures are small.

The tables of the large dataset take too long for this suite; they come from functions that tests/simulating tests.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tools.shuffling import tables
from tools.shuffling.pictures import PICTURES
from tools.shuffling.run import PAGE
from tools.shuffling.run import PICTURES as FOLDER

SMALL = ("correlation", "classes", "settings")


@pytest.mark.parametrize(("held", "published"), [(100, 1.0000), (1_000, 0.9994), (10_000, 0.9482), (100_000, 0.0)])
def test_published_correlations_are_reproduced(held: int, published: float) -> None:
    found, _ = tables.measured(held)["buffer, as stored"]
    assert found == pytest.approx(published, abs=0.01 if held == 100_000 else 0.0005)
    assert f"{published:.4f}" == tables.PUBLISHED[held] or held == 100_000


def test_no_shuffle_holds_more_than_its_row_says() -> None:
    for held in tables.BUFFERS:
        for name, orders in tables.compared(held).items():
            assert name == "exact" or all(order.held <= held for order in orders), (held, name)


@pytest.mark.parametrize("name", SMALL)
def test_tables_of_the_page_are_what_the_command_prints(name: str) -> None:
    found = re.search(f"<!-- shuffling: {name} -->\n(.*?)<!-- end of shuffling: {name} -->", PAGE.read_text(), re.S)
    assert found is not None
    assert found[1] == tables.TABLES[name]()


def test_the_page_has_every_table_and_picture() -> None:
    page = PAGE.read_text()
    assert re.findall("<!-- shuffling: (.*) -->\n[|]", page) == list(tables.TABLES)
    for name in PICTURES:
        assert f"](pictures/shuffling-{name}.png)" in page
        assert (FOLDER / f"shuffling-{name}.png").stat().st_size < 100_000


def test_pictures_are_drawn(tmp_path: Path) -> None:
    for name in ("steps", "maps"):
        path = tmp_path / f"{name}.png"
        PICTURES[name](path)
        assert 5_000 < path.stat().st_size < 100_000
