"""A real headless Chromium, driven by Playwright, for tests of the pages that mdsx shows or writes.

    with browser() as chromium:
        with opened(chromium, url, width=400) as tab:
            tab.page.click("text=Samples")
            assert tab.page.inner_text("h1") == "..."

Only one `browser()` at a time in a process, and not in a thread with an event loop.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal

from playwright.sync_api import Browser, Page, expect, sync_playwright

from tools.browser import ARGUMENTS, chromium

_TIMEOUT = 15_000  # milliseconds for an element to appear: this machine may be busy
expect.set_options(timeout=_TIMEOUT)


@dataclass
class Tab:
    """An open page, and what happened in it."""

    page: Page
    errors: list[str] = field(default_factory=list)
    """Exceptions of scripts, and what the console shows as an error: a violation of the page's policy is one."""
    requests: list[str] = field(default_factory=list)
    """The URL of each request that the page made, `data:` and `blob:` included."""


@contextmanager
def browser() -> Iterator[Browser]:
    """Yield a Chromium with a new, empty profile. It ends with the context."""
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=chromium(), args=list(ARGUMENTS))
        try:
            yield started
        finally:
            started.close()


@contextmanager
def opened(
    chromium: Browser, url: str = "", *, width: int = 1280, height: int = 800, theme: Literal["light", "dark"] = "light"
) -> Iterator[Tab]:
    """Yield a tab of `width` x `height` CSS pixels, on a system with a light or dark `theme`; open `url` if given."""
    context = chromium.new_context(viewport={"width": width, "height": height}, color_scheme=theme)
    try:
        context.set_default_timeout(_TIMEOUT)
        tab = Tab(context.new_page())
        tab.page.on("pageerror", lambda error: tab.errors.append(str(error)))
        tab.page.on("console", lambda said: tab.errors.append(said.text) if said.type == "error" else None)
        tab.page.on("request", lambda request: tab.requests.append(request.url))
        if url:
            tab.page.goto(url)
        yield tab
    finally:
        context.close()
