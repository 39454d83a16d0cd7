"""The picture of a killed and resumed training: what it shows is what was read, and it loads and runs nothing."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal
from xml.etree import ElementTree

import pytest

from mdsx.quickstart import Step, account_of, page
from tests.browser import browser, opened

KILLED = [Step(step, 8.0 - step / 4, (2 * step, 2 * step + 1)) for step in range(1, 8)]
RESUMED = [Step(step, 6.0 - step / 4, (3 * step - 6, 3 * step - 5, 3 * step - 4)) for step in range(6, 10)]
"""The last checkpoint is of step 5. It and the four steps before it read samples 2 to 11, the second life those of
12 to 23: 0 and 1 are lost."""


def example() -> str:
    return page(account_of(24, KILLED, RESUMED), KILLED, RESUMED)


def drawings(text: str) -> list[ElementTree.Element]:
    return [ElementTree.fromstring(svg) for svg in re.findall(r"(?s)<svg.*?</svg>", text)]


def looks(drawing: ElementTree.Element) -> list[str]:
    return [dot.attrib["class"] for dot in drawing.iter("circle")]


def titles(drawing: ElementTree.Element) -> list[str]:
    return [title.text or "" for title in drawing.iter("title")]


def test_each_step_is_a_dot_and_those_without_a_checkpoint_are_open() -> None:
    loss, _ = drawings(example())
    assert looks(loss) == ["one"] * 5 + ["open"] * 2 + ["two"] * 4
    assert titles(loss)[0] == "step 1: 7.75 bits per byte, 2 samples"
    assert titles(loss)[-1] == "step 9: 3.75 bits per byte, 3 samples"


def test_each_sample_is_a_dot_in_its_place_of_the_order() -> None:
    _, order = drawings(example())
    assert len(looks(order)) == 24
    assert titles(order)[0] == "sample 2: read at position 0, in step 1"
    assert "sample 20: read at position 18, in step 8" in titles(order)


def test_lost_samples_are_marked() -> None:
    text = example()
    assert "A promise was broken" in text
    assert titles(drawings(text)[1])[-2:] == ["sample 0: lost", "sample 1: lost"]
    assert looks(drawings(text)[1]).count("bad") == 2


def test_repeated_samples_are_marked() -> None:
    resumed = [*RESUMED, Step(10, 3.0, (0, 1, 2))]
    text = page(account_of(24, KILLED, resumed), KILLED, resumed)
    assert looks(drawings(text)[1]).count("bad") == 2  # sample 2, which both lives have read
    assert "<dt>repeated</dt><dd>1</dd>" in text


def test_the_same_training_gives_the_same_page_without_scripts() -> None:
    assert example() == example()
    assert "<script" not in example()
    assert "script-src" not in example()
    assert not re.search(r"<[^>]* (on\w+|style)=", re.sub(r"(?s)<style.*?</style>", "", example()))
    assert "http" not in re.sub(r"(?s)<style.*?</style>", "", example()).replace("http-equiv", "")


@pytest.mark.slow
@pytest.mark.parametrize(("width", "theme"), [(1200, "light"), (400, "dark")])
def test_the_page_shows_its_charts_and_loads_nothing(
    tmp_path: Path, width: int, theme: Literal["light", "dark"]
) -> None:
    path = tmp_path / "quickstart.html"
    path.write_text(example(), encoding="utf-8")
    with browser() as chromium, opened(chromium, path.as_uri(), width=width, theme=theme) as tab:
        assert tab.page.locator("svg").count() == 2
        colours = "[...document.querySelectorAll('circle')].map((dot) => getComputedStyle(dot).fill)"
        assert len(set(tab.page.evaluate(colours))) == 4  # both lives, open, bad
        assert tab.page.evaluate("document.documentElement.scrollWidth") == width
        assert tab.errors == []
        assert tab.requests == [path.as_uri()]
