"""The page of a report, in a real browser: it draws, answers, loads nothing, and runs nothing of what it shows."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest
from playwright.sync_api import Browser

from mdsx.simulate.page import page
from tests.browser import Tab, browser, opened
from tests.simulate.examples import HOSTILE, example

DRAWN = """() => [...document.querySelectorAll('canvas')].map((canvas) => {
    const {data} = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
    return data.some((value) => value !== 0);
})"""
Theme = Literal["light", "dark"]


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with browser() as started:
        yield started


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "plan.html"
    path.write_text(page(example()), encoding="utf-8")
    return path


def draws_all(tab: Tab, charts: int) -> None:
    tab.page.wait_for_function(f"document.querySelectorAll('canvas').length === {charts}")
    assert tab.page.evaluate(DRAWN) == [True] * charts
    assert tab.errors == []
    assert [url for url in tab.requests if not url.startswith(("file:", "data:"))] == []
    assert len([url for url in tab.requests if url.startswith("file:")]) == 1


@pytest.mark.slow
@pytest.mark.parametrize(("width", "theme"), [(1200, "light"), (1200, "dark"), (400, "light"), (400, "dark")])
def test_charts_are_drawn_and_nothing_is_loaded(chromium: Browser, file: Path, width: int, theme: Theme) -> None:
    with opened(chromium, file.as_uri(), width=width, theme=theme) as tab:
        draws_all(tab, 1 + 5 + 4)
        assert tab.page.evaluate("document.documentElement.scrollWidth") == width


def test_the_same_report_gives_the_same_page() -> None:
    assert page(example()) == page(example())


def test_the_policy_allows_only_the_page_s_own_scripts() -> None:
    text = page(example())
    policy = re.findall(r'Content-Security-Policy" content="([^"]+)"', text)[0]
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe" not in policy
    assert "http" not in policy
    assert not re.search(r"<[^>]* (on\w+|style)=", re.sub(r"(?s)<(script|style).*?</\1>", "", text))


@pytest.mark.slow
def test_hostile_texts_are_shown_and_not_run(chromium: Browser, tmp_path: Path) -> None:
    plain = example()
    advice = {**plain.advice, "reasons": [HOSTILE], "command": HOSTILE, "python": HOSTILE}
    report = example(settings={**plain.settings, "data": HOSTILE, HOSTILE: HOSTILE}, advice=advice, notes=[HOSTILE])
    path = tmp_path / "hostile.html"
    path.write_text(page(report), encoding="utf-8")
    with opened(chromium, path.as_uri(), width=400) as tab:
        draws_all(tab, 10)
        assert tab.page.title() == "A training run, simulated by mdsx"
        assert HOSTILE in tab.page.inner_text("#subject")
        assert HOSTILE in tab.page.inner_text("#notes-list")
        assert tab.page.locator("img").count() == 0
        assert tab.page.evaluate("document.documentElement.scrollWidth") == 400


@pytest.mark.slow
def test_the_slider_and_the_mouse_select_a_choice(chromium: Browser, file: Path) -> None:
    with opened(chromium, file.as_uri(), width=1200) as tab:
        assert "64 lanes, block of 524,288 samples (recommended)" in tab.page.inner_text("#selected")
        tab.page.focus("#point")
        tab.page.keyboard.press("Home")
        assert "1.1 GB cache, 8 lanes, block of 131,072" in tab.page.inner_text("#selected")
        assert "--lanes 8 --shuffle-block 131072 --cache-limit 1.1GB" in tab.page.inner_text("#selected")
        tab.page.keyboard.press("ArrowRight")
        assert "block of 524,288" in tab.page.inner_text("#selected")
        for_choice = "document.querySelector('#curve-chart figure').plot()"
        x, y = tab.page.evaluate(f"[{for_choice}.valToPos(3.3e9, 'x'), {for_choice}.valToPos(0.78, 'y')]")
        tab.page.locator("#curve-chart .u-over").hover(position={"x": x, "y": y})
        assert "3.3 GB cache, 64 lanes" in tab.page.inner_text("#selected")
        tab.page.select_option("#measure", label="Correlation of reading and storing order (0 is best)")
        assert tab.errors == []


@pytest.mark.slow
def test_a_button_selects_the_best_choice_for_the_simulated_cache(chromium: Browser, file: Path) -> None:
    with opened(chromium, file.as_uri()) as tab:
        tab.page.click("text=Best with the simulated cache of 4 GB: 86 % of an exact shuffle")
        text = tab.page.inner_text("#selected")
        assert "3.9 GB cache, 64 lanes, block of 131,072" in text
        assert "✗ 74 shards in a batch, 86 % of an exact shuffle's (wanted: at least 90 %)" in text


@pytest.mark.slow
def test_the_wanted_limits_are_those_of_the_advice(chromium: Browser, tmp_path: Path) -> None:
    plain = example()
    methods = [{**each, "repeated": 0.9, "distinct_of": "class"} for each in plain.quality["methods"]]
    path = tmp_path / "classes.html"
    path.write_text(page(example(quality={**plain.quality, "methods": methods})), encoding="utf-8")
    with opened(chromium, path.as_uri()) as tab:
        text = tab.page.inner_text("#selected")
        assert "(wanted: at least 25 %)" in text
        assert "(wanted: at most 0.24)" in text


@pytest.mark.slow
def test_a_button_copies_the_arguments(chromium: Browser, file: Path) -> None:
    with opened(chromium, file.as_uri()) as tab:
        button = tab.page.locator("#arguments button").nth(1)
        button.click()
        tab.page.wait_for_function("document.querySelectorAll('#arguments button')[1].textContent === 'Copied'")
        tab.page.evaluate("document.body.append(Object.assign(document.createElement('textarea'), {id: 'paste'}))")
        tab.page.focus("#paste")
        tab.page.keyboard.press("Control+V")
        assert "mdsx.Shuffle(lanes=64, shuffle_block=524288)" in tab.page.input_value("#paste")


@pytest.mark.slow
def test_the_switch_changes_the_theme(chromium: Browser, file: Path) -> None:
    with opened(chromium, file.as_uri(), theme="dark") as tab:
        ground = "getComputedStyle(document.body.parentElement).backgroundColor"
        dark = tab.page.evaluate(ground)
        tab.page.click("[data-theme-switch]")
        assert tab.page.evaluate(ground) != dark
        draws_all(tab, 10)


@pytest.mark.slow
def test_what_a_report_lacks_is_left_out(chromium: Browser, tmp_path: Path) -> None:
    path = tmp_path / "small.html"
    path.write_text(page(example(quality={}, advice={}, resume=None)), encoding="utf-8")
    with opened(chromium, path.as_uri()) as tab:
        draws_all(tab, 4)
        for section in ("advice", "curve", "orders", "resume"):
            assert tab.page.locator(f"#{section}").count() == 0
        text = tab.page.inner_text("main")
        assert not re.search(r"undefined|NaN|null|\[object", text)


@pytest.mark.slow
def test_no_text_is_missing(chromium: Browser, file: Path) -> None:
    with opened(chromium, file.as_uri()) as tab:
        text = tab.page.inner_text("main")
        assert not re.search(r"undefined|NaN|null|\[object", text)
        assert tab.page.evaluate("[...document.querySelectorAll('[role=img]')].every((e) => e.ariaLabel)")
