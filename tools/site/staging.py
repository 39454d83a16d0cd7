"""The pages of the site, from Markdown of the repository: docs/*.md, and some files beside it.

Their links to each other become links between pages, and links to other files lead to the hosted repository.
"""

from __future__ import annotations

import itertools
import json
import posixpath
import re
import shutil
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tools.package import project
from tools.processes import ROOT
from tools.site import reference

SITE = ROOT / "build" / "site"
PAGES, HTML = SITE / "pages", SITE / "html"
CONFIG = Path(__file__).with_name("zensical.toml")
STYLE = Path(__file__).with_name("style.css")
_SPELLED_OUT, _EXTENSION = Path(__file__).with_name("spelled_out.py"), "extensions = []"
_NAMED = {
    "ARCHITECTURE.md": "architecture.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "README.md": "index.md",
    "docs/README.md": "overview.md",
    "docs/reference.md": reference.PAGE,
    "format-spec.md": "format.md",
}
"""Files with another name on the site."""
_CODE_OR_LINK = re.compile(
    r"^(?P<indent> *)```.*?^(?P=indent)```$|`[^`\n]+`"
    r"|(?P<begin>\]\(|^\[[^]\n]+\]: )(?!\w+:|#)(?P<path>[^)#\s]+)(?P<anchor>#[^)\s]*)?",
    re.MULTILINE | re.DOTALL,
)
_ITEM = re.compile(r"- |\d+\. ")


def sources() -> dict[str, str]:
    """Return the Markdown files of the site -> the names of their pages."""
    return {f"docs/{path.name}": path.name for path in sorted((ROOT / "docs").glob("*.md"))} | _NAMED


def stage() -> None:
    """Write the pages, pictures and settings into build/site. What is the same already is not touched."""
    pages = sources()
    made = {name: page((ROOT / file).read_text(encoding="utf-8"), file, pages) for file, name in pages.items()}
    made |= reference.pages(made[reference.PAGE])
    (PAGES / "reference").mkdir(parents=True, exist_ok=True)
    for old in {*PAGES.rglob("*.md")} - {PAGES / name for name in made}:
        old.unlink()
    for name, text in made.items():
        _write(PAGES / name, text)
    shutil.copytree(ROOT / "docs" / "pictures", PAGES / "pictures", dirs_exist_ok=True)
    _write(PAGES / STYLE.name, STYLE.read_text(encoding="utf-8"))
    names = itertools.chain.from_iterable(reference.chapters((ROOT / reference.FILE).read_text("utf-8")).values())
    _write(SITE / CONFIG.name, settings(CONFIG.read_text(encoding="utf-8"), reference.aliases(names)))


def page(text: str, file: str, pages: Mapping[str, str]) -> str:
    """Return the page of a Markdown file, whose links then lead to other pages, or to the repository."""
    repository, here = project()["urls"]["Repository"], posixpath.dirname(pages[file]) or "."

    def target(found: re.Match[str]) -> str:
        if found["path"] is None:
            return found[0]  # code
        path, anchor = posixpath.normpath(posixpath.join(posixpath.dirname(file), found["path"])), found["anchor"] or ""
        if path in pages:
            return found["begin"] + posixpath.relpath(pages[path], here) + anchor
        if path.startswith("docs/pictures/"):
            return found["begin"] + posixpath.relpath(path.removeprefix("docs/"), here)
        return f"{found['begin']}{repository}/blob/main/{path}{anchor}" if (ROOT / path).exists() else found[0]

    return "\n".join(_for_zensical(_CODE_OR_LINK.sub(target, text)))


def _for_zensical(text: str) -> Iterator[str]:
    """Yield the lines of a page as Zensical needs them: what belongs to an item of a list is indented by four spaces,
    and the file of a code block is its title."""
    deeper, in_code = 0, False
    for line in text.split("\n"):
        if line.startswith("```"):
            in_code = not in_code
            line = re.sub(r"^(```\w+) (\S+)$", r'\1 title="\2"', line)
        item = None if in_code else _ITEM.match(line)
        if item or line[:1].strip():  # another item, or the end of the list
            deeper = 4 - len(item[0]) if item else 0
        yield " " * deeper + line if line.startswith("  ") else line


def settings(text: str, aliases: Mapping[str, str]) -> str:
    """Return Zensical's settings with the aliases that signatures do not show, and with a link to the repository, whose
    address only pyproject.toml states. It is no `repo_url`: pages would ask its host for the number of stars."""
    pairs = ", ".join(f"{name} = {json.dumps(meaning)}" for name, meaning in sorted(aliases.items()))
    text = text.replace(_EXTENSION, f'extensions = [{{ "{_SPELLED_OUT}" = {{ aliases = {{ {pairs} }} }} }}]')
    link = f'icon = "fontawesome/brands/github"\nlink = "{project()["urls"]["Repository"]}"\n'
    return f"{text}\n[[project.extra.social]]\n{link}"


def navigation() -> Iterator[tuple[str, list[str]]]:
    """Yield each part of the navigation, and its pages."""
    parts: list[dict[str, list[Any]]] = tomllib.loads(CONFIG.read_text(encoding="utf-8"))["project"]["nav"]
    for part in parts:
        for title, entries in part.items():
            yield title, [name for each in entries for name in (each.values() if isinstance(each, dict) else [each])]


def _write(path: Path, text: str) -> None:
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")
