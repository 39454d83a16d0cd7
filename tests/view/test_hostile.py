"""A hostile dataset runs nothing in the page, and a page elsewhere gets nothing from the server: in a real browser."""

from __future__ import annotations

import functools
import pickle
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Browser, Dialog, Page, expect

import mdsx
from mdsx.view.pictures import png
from tests.browser import browser, opened
from tests.view.conftest import served

pytestmark = pytest.mark.slow

RUN = "window.hacked=1;document.title='hacked'"
TEXTS = [
    f"<script>{RUN}</script>",
    f'"><img src=x onerror="{RUN}">',
    f'<svg onload="{RUN}"><animate onbegin="{RUN}" attributeName=x dur=1s>',
    f"</script></style></title></textarea><script>{RUN}</script>",
    f"javascript:{RUN}",
    f"<iframe srcdoc='<script>parent.{RUN}</script>'></iframe>",
    "<link rel=stylesheet href=http://127.0.0.1:9/x.css><base href=http://127.0.0.1:9/>",
    f"${{{RUN}}}{{{{constructor.constructor('{RUN}')()}}}}",
    "\u202etxet desrever\u0000\u0007\u2028 end",
]
HTML = f"<!doctype html><script>{RUN}</script>".encode()
SVG = f"<svg xmlns='http://www.w3.org/2000/svg' onload=\"{RUN}\"><script>{RUN}</script></svg>".encode()
NAMES = (TEXTS[0], f"<img src=x onerror={RUN}>", "__proto__", "constructor", "../../etc/passwd?x=1&y#z")


def nested(depth: int) -> Any:
    value: Any = TEXTS[0]
    for _ in range(depth):
        value = {TEXTS[1]: [value]}
    return value


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *arguments: object) -> None:
        pass


class Bait:
    def __reduce__(self) -> tuple[object, ...]:
        return Path("/nothing").mkdir, ()


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("hostile") / "dataset"
    kinds = ("str", "json", "bytes", "bytes", "bytes[*]")
    metadata = {TEXTS[0]: TEXTS[1], "__proto__": {"hacked": TEXTS[2]}, "deep": nested(30)}
    picture = png(np.zeros((8, 8, 3), np.uint8))
    images = [SVG, HTML, picture + HTML, picture[:40] + HTML, b"GIF89a" + HTML, b"", pickle.dumps(Bait()), b"\xff" * 99]
    with mdsx.Writer(path, dict(zip(NAMES, kinds, strict=True)), metadata=metadata) as out:
        for number, text in enumerate(TEXTS):
            image = images[number % len(images)]
            tree = {text: text, "__proto__": {"hacked": 1}, "a": nested(100), "n": 10**300, "x": [text]}
            values = (text * (10_000 if number == 0 else 1), tree, image, image, [image, text.encode()])
            out.write(dict(zip(NAMES, values, strict=True)))
    return path


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with browser() as started:
        yield started


@pytest.fixture(scope="module")
def address(hostile: Path) -> Iterator[str]:
    with served(hostile) as address:
        yield address


def untouched(page: Page) -> bool:
    found = page.evaluate("[window.hacked, Object.prototype.hacked, document.title, document.scripts.length]")
    return found[:2] == [None, None] and "mdsx view" in found[2] and found[3] == 3


def test_a_hostile_dataset_runs_nothing(chromium: Browser, address: str) -> None:
    with opened(chromium, address) as tab:
        page, dialogs = tab.page, list[str]()

        def dismiss(dialog: Dialog) -> None:
            dialogs.append(dialog.message)
            dialog.dismiss()

        page.on("dialog", dismiss)
        expect(page.locator("main")).to_contain_text("<script>")
        assert untouched(page)
        for number in range(len(TEXTS)):
            page.goto(f"{address}#/0/samples/{number}")
            expect(page.locator("h1")).to_have_text(f"Sample {number}")
            expect(page.locator("#progress")).to_be_hidden()
            for _ in range(4):  # what is unfolded has more to unfold
                page.evaluate("for (const each of document.querySelectorAll('main details')) each.open = true")
            assert untouched(page), number
        page.keyboard.press("/")
        page.keyboard.type("<SCRIPT>\n")
        expect(page.locator(".matches mark").first).to_have_text("<script>")
        page.keyboard.press("Escape")
        for view in ("0/shards", "order?batch_size=2&seed=<script>", "order?batch_size=2", "9/samples/1", "<b>/x/y"):
            page.goto(f"{address}#/{view}")
            expect(page.locator("h1")).to_be_visible()
            assert untouched(page), view
        assert dialogs == []
        assert all(url.startswith(address) for url in tab.requests), tab.requests
        assert not [error for error in tab.errors if "policy" in error.lower() or "trusted" in error.lower()]


def test_an_image_with_a_page_in_it_stays_an_image(chromium: Browser, address: str) -> None:
    """Opened by itself, too; and what is no image by its first bytes is never served."""
    statuses = []
    with opened(chromium) as tab:
        for number in range(len(TEXTS)):
            answer = tab.page.goto(f"{address}api/0/samples/{number}/picture?column=constructor")
            assert answer is not None
            statuses.append(answer.status)
            kind = answer.headers["content-type"]
            assert kind in ("image/png", "image/gif") if answer.status == 200 else kind == "application/json"
            assert tab.page.evaluate("window.hacked") is None
    assert statuses == [400, 400, 200, 200, 200, 400, 400, 400, 400]


def test_a_script_that_got_in_would_not_run(chromium: Browser, address: str) -> None:
    """The second line of defence: the policy refuses what the page never does."""
    with opened(chromium, address) as tab:
        expect(tab.page.locator("h1")).to_be_visible()
        refused = tab.page.evaluate(
            """async () => {
              const refused = [];
              try { document.body.innerHTML = "<img src=x onerror='window.hacked=1'>"; } catch { refused.push("html"); }
              const script = document.createElement("script");
              try { script.textContent = "window.hacked = 1"; } catch { refused.push("script"); }
              document.body.append(script);
              try { await fetch("http://127.0.0.1:9/"); } catch { refused.push("fetch"); }
              const image = new Image();
              image.src = "http://127.0.0.1:9/x.png";
              await new Promise((resolve) => { image.onerror = resolve; image.onload = resolve; });
              if (!image.naturalWidth) refused.push("image");
              return refused;
            }"""
        )
        assert refused == ["html", "script", "fetch", "image"]
        assert tab.page.evaluate("window.hacked") is None
        assert sum("Content Security Policy" in error for error in tab.errors) >= 2


def test_a_page_elsewhere_gets_nothing_even_with_the_address(chromium: Browser, address: str, tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text("<!doctype html><title>elsewhere</title>")
    handler = functools.partial(Quiet, directory=str(tmp_path))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as elsewhere:
        thread = threading.Thread(target=elsewhere.serve_forever)
        thread.start()
        try:
            with opened(chromium, f"http://localhost:{elsewhere.server_port}/") as tab:
                found = tab.page.evaluate(
                    """async (address) => {
                      const found = [];
                      try { found.push(await (await fetch(`${address}api/overview`)).text()); } catch {}
                      const blind = {mode: "no-cors"};
                      try { found.push(await (await fetch(`${address}api/overview`, blind)).text()); } catch {}
                      const loaded = (tag, name) => new Promise((resolve) => {
                        const made = document.createElement(tag);
                        made.onload = () => { found.push(name); resolve(); };
                        made.onerror = resolve;
                        made.src = `${address}${name}`;
                        document.body.append(made);
                      });
                      await loaded("script", "theme.js");
                      await loaded("img", "api/0/samples/2/picture?column=constructor");
                      const frame = document.createElement("iframe");
                      frame.src = address;
                      await new Promise((resolve) => { frame.onload = resolve; document.body.append(frame); });
                      try { found.push(frame.contentDocument.title); } catch {}
                      return found;
                    }""",
                    address,
                )
                assert found in ([], [""])  # an opaque answer has no text
                assert [frame.url for frame in tab.page.frames if frame.url == address] == []
        finally:
            elsewhere.shutdown()
            thread.join()
