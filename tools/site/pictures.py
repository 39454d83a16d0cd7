"""The pictures of docs/plan.md, taken of the pages as they are now.

The data is made up, so that the same pages give the same pictures.
"""

from __future__ import annotations

import io
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal
from unittest.mock import patch

import numpy as np
import PIL.Image
import PIL.ImageDraw
from playwright.sync_api import Browser, Page, expect, sync_playwright

import mdsx
from mdsx.view import Library, Opening, serve
from tools.browser import ARGUMENTS, chromium
from tools.processes import ROOT
from tools.servers.s3 import S3Server

PICTURES = ROOT / "docs" / "pictures"
_COLUMNS = {
    "image": "jpeg",
    "caption": "str",
    "label": "int64",
    "audio": "float32[*]",
    "tokens": "uint16[*]",
    "thumb": "uint8[28,28]",
    "info": "json",
    "raw": "bytes",
    "score": "float64?",
}
_SAMPLES = 960
_WORDS = "birds sing over quiet fields and the old mill turns slowly while warm wind crosses a frozen red river"
_RUN = "--samples 2000000 --sample-size 200kB --world-size 32 --ranks-per-node 8 --batch-size 64 --link 250MB"
_RUN += " --step 0.2 --cache-limit 20GB"


def take() -> None:
    """Take all pictures. Raise RuntimeError if there is no Chromium."""
    path = chromium()
    with TemporaryDirectory() as made, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=list(ARGUMENTS))
        try:
            _view(browser, Path(made))
            _simulate(browser, Path(made, "plan.html"))
        finally:
            browser.close()


@contextmanager
def _page(
    browser: Browser, url: str, width: int, height: int, theme: Literal["light", "dark"] = "light"
) -> Iterator[Page]:
    context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=theme)
    try:
        page = context.new_page()
        page.goto(url)
        page.wait_for_load_state("networkidle")
        yield page
    finally:
        context.close()


def _take(page: Page, name: str) -> None:
    picture = PIL.Image.open(io.BytesIO(page.screenshot())).convert("RGB")
    picture.save(PICTURES / f"{name}.png", optimize=True)


def _view(browser: Browser, folder: Path) -> None:
    with S3Server(folder) as server, patch.dict(os.environ, server.env()):
        url = f"{server.make_bucket('bucket')}/pictures"
        metadata = {"title": "pictures with captions", "licence": "CC0", "sources": ["made", "up"]}
        with mdsx.Writer(url, _COLUMNS, shard_size=600_000, metadata=metadata) as out:
            for number in range(_SAMPLES):
                out.write(_sample(number))
        damaged = folder / "bucket" / "pictures" / "shard.00002.mdsx"
        data = bytearray(damaged.read_bytes())
        data[-5000] ^= 1
        damaged.write_bytes(data)
        with serve(Library([url], Opening())) as view:
            thread = threading.Thread(target=view.run)
            thread.start()
            try:
                _views(browser, view.address)
            finally:
                view.stop()
                thread.join()


def _views(browser: Browser, address: str) -> None:
    with _page(browser, address, 1280, 860) as page:
        _take(page, "view-overview")
    with _page(browser, f"{address}#/0/samples/12", 1280, 1000) as page:
        _take(page, "view-samples")
    with _page(browser, f"{address}#/0/samples/12", 400, 1000, "dark") as page:
        page.evaluate("scrollTo(0, 330)")
        page.wait_for_load_state("networkidle")
        _take(page, "view-narrow")
    with _page(browser, f"{address}#/0/shards", 1280, 860) as page:
        for number in range(4):
            row = page.locator("tbody tr").nth(number)
            row.get_by_role("button", name="Check").click()
            expect(row).to_contain_text("damaged")  # or undamaged
        _take(page, "view-shards")
    with _page(browser, f"{address}#/order", 1280, 860, "dark") as page:
        run = {"Seed": 7, "Epoch": 2, "Batch": 5, "Batch size of a rank": 32, "World size": 4}
        for label, value in run.items():
            page.get_by_label(label, exact=True).fill(str(value))
        page.get_by_role("button", name="Show the batch").click()
        expect(page.locator(".ranks li")).to_have_count(4)
        page.wait_for_load_state("networkidle")
        _take(page, "view-order")


def _simulate(browser: Browser, page_file: Path) -> None:
    command = [sys.executable, "-m", "mdsx", "simulate", *_RUN.split(), "--html", str(page_file)]
    subprocess.run(command, cwd=page_file.parent, stdout=subprocess.DEVNULL, check=True)
    with _page(browser, page_file.as_uri(), 1200, 2180) as page:
        _take(page, "simulate-light")
    with _page(browser, page_file.as_uri(), 400, 1650, "dark") as page:
        _take(page, "simulate-dark-narrow")


def _sample(number: int) -> dict[str, object]:
    chance = np.random.default_rng(number)
    words = chance.choice(_WORDS.split(), 8)
    times = np.arange(4000)
    sound = np.sin(times / (90 + number % 40)) * np.exp(-times / 2000) + chance.normal(0, 0.01, 4000)
    return {
        "image": _image(number),
        "caption": " ".join(words).capitalize() + ".",
        "label": number % 10,
        "audio": sound.astype(np.float32),
        "tokens": chance.integers(0, 50_000, 40 + number % 20).astype(np.uint16),
        "thumb": chance.integers(0, 255, (28, 28)).astype(np.uint8),
        "info": {"id": number, "tags": [str(word) for word in words[:2]]},
        "raw": bytes(range(64)),
        "score": None if number % 7 == 0 else round(float(chance.random()), 3),
    }


def _image(number: int) -> bytes:
    """Return a JPEG: a sun over a meadow, in colours of its own."""
    y, x = np.mgrid[0:220, 0:320] / 320
    waves = [np.sin(6 * x + number / 3 + shift) + np.cos(5 * y + number / 5 - shift) for shift in (0.0, 2.1, 4.2)]
    picture = PIL.Image.fromarray((127 + 60 * np.stack(waves, axis=-1)).astype(np.uint8))
    draw = PIL.ImageDraw.Draw(picture)
    left = 60 + number % 5 * 12
    draw.ellipse((left, 40, left + 110, 150), fill=(240, 200, 40 + number * 20 % 180))
    draw.rectangle((0, 170, 320, 220), fill=(30, 70, 50))
    file = io.BytesIO()
    picture.save(file, "JPEG", quality=85)
    return file.getvalue()
