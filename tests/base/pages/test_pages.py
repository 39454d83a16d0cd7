"""The assets that pages share: each can be read, texts have enough contrast, and the switch changes the theme."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from mdsx.base import pages
from mdsx.base.pages import NAMES, asset
from tests.browser import browser, opened

GROUNDS = ("ground", "raised", "sunken")
TEXTS = ("ink", "soft", "accent", "good", "warn", "bad")
SERIES = tuple(f"series-{number}" for number in range(1, 7))


def themes() -> list[dict[str, str]]:
    """Return the hexadecimal colours of the light theme, of the system's dark one and of the chosen dark one."""
    blocks = re.findall(r":root[^{]*\{([^}]*)\}", asset("theme.css"))
    return [dict(re.findall(r"--([\w-]+): (#\w{6});", block)) for block in blocks]


def contrast(first: str, second: str) -> float:
    """Return the contrast of two colours as WCAG 2 defines it, from 1 to 21."""
    darker, lighter = sorted(map(luminance, (first, second)))
    return (lighter + 0.05) / (darker + 0.05)


def luminance(color: str) -> float:
    parts = [int(color[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def test_each_asset_is_shipped_with_its_licence() -> None:
    files = {path.name for path in (Path(pages.__file__).parent / "assets").iterdir()}
    assert files == {*NAMES, "uplot.LICENSE"}
    assert all(asset(name) for name in NAMES)
    assert "var uPlot" in asset("uplot.js")


@pytest.mark.parametrize("name", ["uplot.LICENSE", "../__init__.py", "nothing.js"])
def test_no_other_file_is_read(name: str) -> None:
    with pytest.raises(KeyError):
        asset(name)


def test_texts_and_series_have_enough_contrast_in_both_themes() -> None:
    light, *dark = themes()
    assert len(dark) == 2
    assert dark[0] == dark[1]
    assert set(light) == set(dark[0])
    for theme in (light, dark[0]):
        for ground in GROUNDS:
            assert [name for name in TEXTS if contrast(theme[name], theme[ground]) < 4.5] == []
            assert [name for name in (*SERIES, "edge") if contrast(theme[name], theme[ground]) < 3] == []
        assert contrast(theme["accent"], theme["accent-ground"]) >= 4.5
        assert contrast(theme["ink"], theme["accent-ground"]) >= 4.5
        assert contrast(theme["on-accent"], theme["accent"]) >= 4.5
        assert contrast(theme["bad"], theme["bad-ground"]) >= 4.5


@pytest.mark.slow
def test_the_switch_changes_the_theme_and_a_chart_is_drawn(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    chart = "new uPlot({width: 300, height: 200, series: [{}, {stroke: mdsxTheme.color('series-1')}]}, [[1, 2], [3, 4]]"
    page.write_text(
        f"<!doctype html><style>{asset('theme.css')}{asset('uplot.css')}</style><script>{asset('theme.js')}</script>"
        f"<button data-theme-switch></button><script>{asset('uplot.js')}</script>"
        f"<script>var changes = 0; document.addEventListener('themechange', () => changes++); {chart}, document.body)"
        "</script>"
    )
    with browser() as chromium, opened(chromium, page.as_uri(), theme="dark") as tab:
        ground = "getComputedStyle(document.documentElement).backgroundColor"
        assert tab.page.inner_text("button") == "Theme: system"
        dark = tab.page.evaluate(ground)
        tab.page.click("button")
        assert tab.page.inner_text("button") == "Theme: light"
        assert tab.page.evaluate(ground) != dark
        tab.page.click("button")
        assert tab.page.evaluate(ground) == dark
        assert tab.page.evaluate("changes") == 2
        tab.page.reload()
        assert tab.page.inner_text("button") == "Theme: dark"
        assert tab.page.is_visible("canvas")
        assert tab.errors == []
