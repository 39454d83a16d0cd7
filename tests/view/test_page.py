"""The page of `mdsx view` in a real browser."""

from __future__ import annotations

import io
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import soundfile
from playwright.sync_api import Browser, expect

import mdsx
from mdsx.view import Opening, Tokenizer
from tests.browser import browser, opened
from tests.view.conftest import SAMPLES, served

pytestmark = pytest.mark.slow

TOKENS = ["[UNK]", "red", " fox", "A"]


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with browser() as started:
        yield started


@pytest.fixture(scope="module")
def address(dataset: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A page of a copy of the dataset with one damaged shard, and a tokenizer."""
    from tokenizers import Tokenizer as Loaded
    from tokenizers.models import WordLevel

    file = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    Loaded(WordLevel({word: number for number, word in enumerate(TOKENS)}, unk_token="[UNK]")).save(str(file))
    copy = tmp_path_factory.mktemp("copy") / "pictures"
    shutil.copytree(dataset, copy)
    shard = sorted(copy.glob("*.mdsx"))[2]
    data = bytearray(shard.read_bytes())
    data[-100] ^= 1
    shard.write_bytes(data)
    with served(copy, opening=Opening(tokenizer=Tokenizer(file))) as address:
        yield address


def test_the_overview_shows_columns_and_metadata(chromium: Browser, address: str) -> None:
    with opened(chromium, address) as tab:
        expect(tab.page.get_by_role("heading", name="Overview")).to_be_visible()
        expect(tab.page.locator("main")).to_contain_text("uint16[*]")
        expect(tab.page.locator("main")).to_contain_text('title: "a test"')
        expect(tab.page.locator(".tiles")).to_contain_text(str(SAMPLES))
        assert tab.errors == []
        assert all(url.startswith(address) for url in tab.requests)


def test_a_sample_shows_image_plot_tokens_and_folded_json(chromium: Browser, address: str) -> None:
    with opened(chromium, f"{address}#/0/samples/7") as tab:
        page = tab.page
        expect(page.get_by_role("heading", name="Sample 7", exact=True)).to_be_visible()
        card = {
            name: page.get_by_role("region", name=f"Column {name}") for name in ("image", "audio", "tokens", "info")
        }
        expect(card["image"].locator("figcaption")).to_have_text(re.compile("30 . 20 pixels"))
        expect(card["audio"].locator("canvas")).to_have_count(2)
        expect(card["audio"]).to_contain_text("shape500")
        expect(card["tokens"].locator("pre").first).to_have_text("A red  fox")
        expect(card["info"].get_by_text("deepest")).to_have_count(0)
        card["info"].get_by_text("deep:").click()
        card["info"].get_by_text("deeper:").click()
        expect(card["info"].get_by_text("deepest")).to_be_visible()
        assert tab.errors == []


def test_the_keyboard_moves_and_searches(chromium: Browser, address: str) -> None:
    with opened(chromium, f"{address}#/0/samples/0") as tab:
        page = tab.page
        title = page.locator("h1")
        expect(title).to_have_text("Sample 0")
        for key, number in (("j", 1), ("ArrowRight", 2), ("k", 1), ("ArrowLeft", 0), ("]", 10), ("[", 0), ("k", 0)):
            page.keyboard.press(key)
            expect(title).to_have_text(f"Sample {number}")
        page.keyboard.press("g")
        page.keyboard.type("119\n")
        expect(title).to_have_text("Sample 119")
        page.keyboard.press("Escape")
        page.keyboard.press("/")
        assert page.evaluate("document.activeElement.id") == "search"
        page.keyboard.type("RED fox\n")
        expect(page.locator(".far")).to_contain_text("All 120 of 120 samples looked at, ")
        expect(page.locator(".matches mark").first).to_have_text("red fox")
        page.locator(".matches a").nth(1).click()
        expect(title).to_have_text("Sample 17")
        page.keyboard.press("?")
        expect(page.get_by_role("dialog")).to_be_visible()
        page.keyboard.press("Escape")
        for key, name in (("1", "Overview"), ("3", "Shards"), ("4", "Order")):
            page.keyboard.press(key)
            expect(title).to_have_text(name)
        page.go_back()
        expect(title).to_have_text("Shards")
        page.keyboard.press("2")
        expect(title).to_have_text("Sample 17")  # where it was
        assert tab.errors == []


def test_a_search_that_fails_says_why(chromium: Browser, address: str) -> None:
    with opened(chromium, f"{address}#/0/samples/0") as tab:
        page = tab.page
        expect(page.locator("h1")).to_have_text("Sample 0")
        error = {"kind": "TransportError", "message": "the storage is away"}
        page.route(re.compile(r"/search\?"), lambda route: route.fulfill(status=502, json={"error": error}))
        page.keyboard.press("/")
        page.keyboard.type("red\n")
        expect(page.locator(".far")).to_contain_text("Stopped: 0 of 120 samples looked at, 0 found")
        expect(page.locator(".far")).to_contain_text("the storage is away")


def test_a_number_that_is_not_there_is_explained(chromium: Browser, address: str) -> None:
    with opened(chromium, f"{address}#/0/samples/0") as tab:
        page = tab.page
        page.get_by_label("Sample", exact=True).fill("120")
        page.get_by_role("button", name="Go", exact=True).click()
        expect(page.locator(".message")).to_have_text("Give the number of a sample, from 0 to 119.")
        page.get_by_label("Shard", exact=True).fill("1")
        page.get_by_role("button", name="To its start").click()
        expect(page.locator(".detail")).to_contain_text("number 0 of shard 1")


def test_a_check_names_the_damage_of_a_shard(chromium: Browser, address: str) -> None:
    with opened(chromium, f"{address}#/0/shards") as tab:
        row = tab.page.locator("tbody tr")
        expect(row.nth(0)).to_contain_text("not checked")
        row.nth(0).get_by_role("button", name="Check").click()
        expect(row.nth(0)).to_contain_text("undamaged")
        row.nth(2).get_by_role("button", name="Check").click()
        expect(row.nth(2)).to_contain_text("damaged")
        expect(row.nth(2).locator(".problems")).to_contain_text("CorruptError")
        said = row.nth(2).locator(".problems").inner_text()
        damaged = re.search(r"\((\d+) of the dataset\)", said)
        assert damaged is not None, said
        tab.page.goto(f"{address}#/0/samples/{damaged[1]}")
        expect(tab.page.locator("h1")).to_have_text(f"Sample {damaged[1]}")
        expect(tab.page.get_by_role("alert").filter(has_text="checksum does not match")).to_be_visible()
        expect(tab.page.locator(".rows .bad")).to_have_count(1)
        assert [error for error in tab.errors if "422" not in error] == []


def test_the_order_is_that_of_a_loader(chromium: Browser, address: str, dataset: Path) -> None:
    with opened(chromium, f"{address}#/order") as tab:
        page = tab.page
        run = {"Seed": 7, "Epoch": 2, "Batch": 1, "Batch size of a rank": 6, "World size": 3, "Rank": 1}
        for label, value in run.items():
            page.get_by_label(label, exact=True).fill(str(value))
        page.get_by_role("button", name="Show the batch").click()
        expect(page.locator("main")).to_contain_text("Batch 1 of 6")
        expect(page.locator(".ranks li")).to_have_count(3)
        found = [int(text) for text in page.locator(".numbers td:last-child").all_inner_texts()]
        loader = mdsx.Loader(str(dataset), 6, seed=7, rank=1, world_size=3, columns=["info"])
        loader.set_epoch(2)
        batches = iter(loader)
        next(batches)
        assert found == [each["id"] for each in next(batches)["info"]]
        page.locator(".numbers a").first.click()
        expect(page.locator("h1")).to_have_text(f"Sample {found[0]}")
        assert tab.errors == []


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_it_fits_a_narrow_screen_in_both_themes(chromium: Browser, address: str, theme: str) -> None:
    with opened(chromium, address, width=400, theme="dark" if theme == "dark" else "light") as tab:
        ground = tab.page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
        assert (int(ground.split("(")[1].split(",")[0]) < 60) == (theme == "dark")
        for view in ("0/overview", "0/samples/7", "0/shards", "order?world_size=4&batch_size=4"):
            tab.page.goto(f"{address}#/{view}")
            expect(tab.page.locator("h1")).to_be_visible()
            expect(tab.page.locator("#progress")).to_be_hidden()
            assert tab.page.evaluate("document.documentElement.scrollWidth") <= 400, view
        assert tab.errors == []


def test_several_datasets_are_chosen_at_the_top(chromium: Browser, dataset: Path, tmp_path: Path) -> None:
    with mdsx.Writer(tmp_path / "other", {"text": "str"}) as out:
        out.write({"text": "of the other dataset"})
    with served(dataset, tmp_path / "other") as address, opened(chromium, address) as tab:
        page = tab.page
        page.get_by_label("Dataset").select_option("1")
        expect(page.locator("main")).to_contain_text(str(tmp_path / "other"))
        page.keyboard.press("Escape")
        page.keyboard.press("2")
        expect(page.locator(".detail")).to_contain_text("of the other dataset")
        page.keyboard.press("4")  # columns that differ make no mixture, and the page says so
        expect(page.get_by_role("alert")).to_contain_text("columns")
        page.get_by_label("Dataset").select_option("0")
        expect(page.locator("main")).to_contain_text(str(dataset))
    with served(dataset, dataset) as address, opened(chromium, f"{address}#/order?proportions=0+1") as tab:
        expect(tab.page.locator(".numbers td:nth-child(2)").first).to_have_text(str(dataset))
        tab.page.locator(".numbers a").first.click()
        expect(tab.page.locator("h1")).to_contain_text("Sample")
        assert "#/1/samples/" in tab.page.url
        assert tab.errors == []


def test_the_switch_of_the_theme_redraws_the_charts(chromium: Browser, address: str) -> None:
    with opened(chromium, f"{address}#/0/samples/3") as tab:
        page = tab.page
        chart = page.get_by_role("region", name="Column audio").locator("canvas").first
        expect(chart).to_be_visible()
        before = chart.screenshot()
        page.keyboard.press("t")
        page.keyboard.press("t")
        expect(page.get_by_role("button", name="Theme: dark")).to_be_visible()
        after = page.get_by_role("region", name="Column audio").locator("canvas").first
        expect(after).to_be_visible()
        assert after.screenshot() != before


def test_the_focus_is_visible_and_reaches_each_control(chromium: Browser, address: str) -> None:
    with opened(chromium, f"{address}#/0/samples/3") as tab:
        page = tab.page
        expect(page.locator("h1")).to_have_text("Sample 3")
        reached = []
        for _ in range(18):
            page.keyboard.press("Tab")
            reached.append(page.evaluate("(document.activeElement.textContent || document.activeElement.id).trim()"))
            outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
            assert outline != "none", reached[-1]
        assert {"Skip to the content", "Overview", "Keys", "number", "search", "Find"} <= set(reached), reached
        unnamed = page.evaluate(
            """[...document.querySelectorAll("input, select, button, main img, a")].filter((each) =>
              !(each.labels?.length || each.ariaLabel || each.textContent.trim() || each.hasAttribute("alt")))
              .map((each) => each.outerHTML)"""
        )
        assert unnamed == []


def tone(format: str) -> bytes:
    """Two seconds of sound as a file of a format."""
    file = io.BytesIO()
    soundfile.write(file, np.sin(np.arange(32_000, dtype=np.float32) / 20), 16_000, format=format)
    return file.getvalue()


def test_sound_and_video_play(chromium: Browser, tmp_path: Path) -> None:
    video = (Path(__file__).parent / "golden" / "two-seconds.mp4").read_bytes()  # VP9, 10 frames a second, by PyAV
    values = {"speech": tone("WAV"), "song": tone("MP3"), "take": tone("FLAC"), "clip": video}
    with mdsx.Writer(tmp_path / "data", {"speech": "wav", "song": "mp3", "take": "flac", "clip": "mp4"}) as out:
        out.write(values)
    with served(tmp_path / "data") as address, opened(chromium, f"{address}#/0/samples/0") as tab:
        for column in values:
            player = tab.page.get_by_label(f"{column} of sample 0")
            player.evaluate("async player => { player.muted = true; await player.play(); }")
            assert player.evaluate("player => player.duration") == pytest.approx(2, abs=0.15)
            player.evaluate("player => { player.currentTime = 1.5; }")
            tab.page.wait_for_function("player => player.ended", arg=player.element_handle())
        assert tab.errors == []
