"""The site: its pages come from the repository, nothing leads nowhere, and each public name is there."""

from __future__ import annotations

import fcntl
import functools
import inspect
import os
import re
import threading
from collections.abc import Iterator
from dataclasses import is_dataclass
from html.parser import HTMLParser
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import FunctionType
from typing import Any, Literal, is_typeddict

import pytest
from playwright.sync_api import expect

import mdsx
import mdsx.engines.ray
import mdsx.engines.spark
import mdsx.testing
import mdsx.torch
from tests.browser import browser, opened
from tests.tools import ROOT
from tools.commands import parser
from tools.package import project
from tools.site import reference
from tools.site.run import llms_txt, opening, run
from tools.site.staging import HTML, PAGES, navigation, page, settings, sources, stage

MODULES = (mdsx, mdsx.torch, mdsx.testing, mdsx.engines.ray, mdsx.engines.spark)
NAMES = ["mdsx.zip"] + [
    f"{module.__name__}.{name}"
    for module in MODULES
    for name in module.__all__
    if module is mdsx or getattr(module, name) is not getattr(mdsx, name, None)  # the same in two places
]
REPOSITORY = project()["urls"]["Repository"]


def members(name: str) -> Iterator[tuple[str, Any]]:
    """Yield the public members of a class that a reader of the reference sees."""
    hidden = re.compile(f"_|({reference.INTERNAL.get(name, '_')})$")
    for key, member in vars(reference.public(name)).items():
        if isinstance(member, property | classmethod | FunctionType) and not hidden.match(key):
            yield key, member


def test_the_reference_has_each_public_name_once() -> None:
    chapters = reference.chapters((ROOT / reference.FILE).read_text(encoding="utf-8"))
    assert sorted(name for names in chapters.values() for name in names) == sorted(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_each_callable_has_few_arguments_by_position(name: str) -> None:
    thing = reference.public(name)
    if not callable(thing) or is_typeddict(thing) or name.endswith("Error") or is_dataclass(thing):
        return  # not for users to construct
    parameters = inspect.signature(thing).parameters.values()
    by_position = [given for given in parameters if given.kind is given.POSITIONAL_OR_KEYWORD]
    assert len(by_position) <= (4 if name == "mdsx.build" else 3)  # build(function, inputs, url, columns)


def test_each_public_member_is_documented() -> None:
    classes = [name for name in NAMES if inspect.isclass(reference.public(name))]
    assert not [f"{name}.{key}" for name in classes for key, member in members(name) if not inspect.getdoc(member)]


def test_each_hidden_member_exists() -> None:
    used, listed = set[str](), set[str]()
    for name, patterns in reference.INTERNAL.items():
        thing = reference.public(name)
        known = {*dir(thing), *getattr(thing, "__annotations__", ())}
        used |= {each for each in patterns.split("|") if any(re.fullmatch(each, one) for one in known)}
        listed |= {*patterns.split("|")}
    assert used == listed


def test_the_navigation_has_each_page_once() -> None:
    names = [name for _, names in navigation() for name in names]
    pages = reference.pages((ROOT / reference.FILE).read_text(encoding="utf-8"))
    assert sorted(names) == sorted({*sources().values()} | pages.keys())


@pytest.mark.parametrize(
    ("link", "leads_to"),
    [
        ("training.md#seed", "training.md#seed"),
        ("../README.md", "index.md"),
        ("../format-spec.md#10-order", "format.md#10-order"),
        ("pictures/view-order.png", "pictures/view-order.png"),
        ("../examples/pretrain_gpt.py", f"{REPOSITORY}/blob/main/examples/pretrain_gpt.py"),
        ("../examples", f"{REPOSITORY}/blob/main/examples"),
        ("#here", "#here"),
        ("https://example.com/a.md", "https://example.com/a.md"),
        ("reference.md", "reference/index.md"),
        ("nowhere.md", "nowhere.md"),  # Zensical reports it
    ],
)
def test_links_lead_to_pages_or_to_the_repository(link: str, leads_to: str) -> None:
    assert page(f"See [`a`]({link}), and", "docs/operations.md", sources()) == f"See [`a`]({leads_to}), and"


def test_links_of_a_page_in_a_folder_lead_out_of_it() -> None:
    assert page("[a](operations.md#errors)", reference.FILE, sources()) == "[a](../operations.md#errors)"


def test_links_may_be_defined_at_the_end() -> None:
    text = '[a][1]\n\n[1]: ../README.md#install "title"\n[2]: https://example.com/\n'
    assert page(text, "docs/compared.md", sources()) == text.replace("../README.md", "index.md")


def test_links_in_code_stay() -> None:
    text = "`[a](../README.md)`\n\n```md\n[a](../README.md)\n```\n"
    assert page(text, "docs/operations.md", sources()) == text


def test_what_belongs_to_an_item_is_indented_by_four_spaces() -> None:
    text = "- An item\n  of two lines\n  - nested\n\n  ```\n  code\n  ```\n1. one\n   line\n\n```\n- a\n  b\n```\n"
    indented = "- An item\n    of two lines\n    - nested\n\n    ```\n    code\n    ```\n1. one\n    line\n\n"
    indented += "```\n- a\n  b\n```\n"
    assert page(text, "docs/operations.md", sources()) == indented


def test_the_file_of_a_code_block_is_its_title() -> None:
    assert page("```python a.py\nb\n```\n", "README.md", sources()) == '```python title="a.py"\nb\n```\n'


def test_the_settings_name_the_repository_of_the_project() -> None:
    assert f'\nlink = "{REPOSITORY}"\n' in settings("[project]\n", {})


def test_signatures_show_no_alias_that_users_cannot_import() -> None:
    found = reference.aliases(NAMES)
    assert found["OnError"] == "Literal['raise', 'skip']"
    assert found["ColumnChoice"] == "Sequence[str] | Mapping[str, str | Cast]"
    assert "[project]\nextensions = [{" in settings("[project]\nextensions = []\n", found)


def test_llms_txt_lists_each_page_with_its_first_paragraph() -> None:
    stage()
    text = "\n".join(llms_txt())
    assert text.startswith(f"# mdsx\n\n> {project()['description']}\n")
    assert re.findall(r"^## (.*)$", text, re.MULTILINE) == [title for title, _ in navigation()]
    assert text.count("\n- [") == sum(len(names) for _, names in navigation())
    assert opening("# A title\n\n<!-- a mark -->\n\nIt [has](a.md) two\nlines.\n\nMore.") == (
        "A title",
        "It has two lines.",
    )


class _Handler(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Do not print each request."""


class _Found(HTMLParser):
    """The identifiers and links of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids, self.links = set[str](), set[str]()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.ids.add(given.get("id") or "")
        if link := given.get("href") or given.get("src"):
            self.links.add(link)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> dict[str, _Found]:
    """The pages of the site, built once for all of pytest's workers: their paths in it -> what is in them."""
    shared = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        shared = shared.parent
    with (shared / "site").open("a") as built:
        fcntl.flock(built, fcntl.LOCK_EX)
        if not os.fstat(built.fileno()).st_size:
            assert run(parser().parse_args(["site"])) == 0
            built.write("built")
    return {path.relative_to(HTML).as_posix(): _Found(path.read_text("utf-8")) for path in HTML.rglob("*.html")}


@pytest.mark.slow
def test_each_link_of_the_built_site_has_a_target(site: dict[str, _Found]) -> None:
    """Also those that Zensical does not check: of its templates, of HTML in pages, and in docstrings."""
    wrong = []
    for file, found in site.items():
        for link in found.links:
            path, _, anchor = link.partition("#")
            if file == "404.html" or re.match(r"\w+:|//", link):  # its links are from the root
                continue
            target = (HTML / file).parent.joinpath(path).resolve() if path else HTML / file
            target = target / "index.html" if target.is_dir() else target
            inside = target.is_relative_to(HTML) and target.is_file()
            ids = site[target.relative_to(HTML).as_posix()].ids if inside and target.suffix == ".html" else set()
            if not inside or (anchor and target.suffix == ".html" and anchor not in ids | {"__"}):
                wrong.append(f"{file}: {link}")
    assert not wrong


@pytest.mark.slow
def test_the_built_reference_has_each_public_name_and_member(site: dict[str, _Found]) -> None:
    there = set[str]().union(*(found.ids for file, found in site.items() if file.startswith("reference/")))
    classes = [name for name in NAMES if inspect.isclass(reference.public(name))]
    assert not {*NAMES, *(f"{name}.{key}" for name in classes for key, _ in members(name))} - there
    assert "mdsx.torch.StreamingDataLoader.state_dict" in there  # of a base that is not public
    assert not [each for each in there if re.match(r"mdsx\.\w+\._", each)]


@pytest.fixture(scope="module")
def address(site: dict[str, _Found]) -> Iterator[str]:
    """Where the built site is served."""
    assert site
    handler = functools.partial(_Handler, directory=str(HTML))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


@pytest.mark.slow
@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1280])
def test_pages_fit_a_browser_and_ask_nobody_else(address: str, width: int, theme: Literal["light", "dark"]) -> None:
    with browser() as chromium:
        for name in ("index", "training", "benchmarks", "reference/train"):
            with opened(chromium, f"{address}{name}.html", width=width, theme=theme) as tab:
                tab.page.wait_for_load_state("networkidle")
                assert tab.page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
                assert not [url for url in tab.requests if not url.startswith((address, "data:", "blob:"))]
                assert not tab.errors


@pytest.mark.slow
def test_a_search_finds_a_page(address: str) -> None:
    with browser() as chromium, opened(chromium, address) as tab:
        tab.page.locator(".md-search__button").click()
        tab.page.wait_for_function("document.activeElement.shadowRoot")  # the field of the dialog has the focus
        tab.page.keyboard.type("shuffle_block")
        expect(tab.page.get_by_text(re.compile(r"^[1-9]\d* results$"))).to_be_visible()


@pytest.mark.slow
@pytest.mark.usefixtures("site")
def test_the_site_has_the_pages_for_language_models() -> None:
    linked = re.findall(r"^- \[.*?\]\(([^)]+)\)", (HTML / "llms.txt").read_text(encoding="utf-8"), re.MULTILINE)
    assert linked
    assert not [link for link in linked if not Path(HTML, link).is_file()]
    assert {path.name for path in PAGES.glob("*.md")} <= set(linked)
