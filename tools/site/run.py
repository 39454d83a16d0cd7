"""The command: stages the pages, and has Zensical build or serve them. `llms.txt` lists them for language models."""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence

from tools.console import Console
from tools.environment import CannotInstall, PeerEnvironment
from tools.package import project
from tools.processes import ROOT
from tools.site import pictures
from tools.site.staging import CONFIG, HTML, PAGES, SITE, navigation, sources, stage

_POLL = 1  # seconds between looks for changed pages
_PROGRAM = """
import logging, sys
logging.basicConfig(format="WARNING %(name)s: %(message)s", level=logging.WARNING, stream=sys.stdout)
from zensical.main import cli
cli()
"""
"""Zensical, with the warnings of what reads docstrings."""
_COLOR = re.compile(r"\x1b\[[0-9;]*m")
_WARNING = re.compile(r"\bwarning\b", re.IGNORECASE)
_FILE = re.compile(r"\bdocs/([a-z-]+)\.md\b")


def run(given: argparse.Namespace) -> int:
    """Return 1 if the pages are not right, or Zensical cannot be installed."""
    console, environment = Console(), PeerEnvironment("site", shared=False)
    if given.pictures:
        with console.step("Take the pictures of docs/plan.md"):
            pictures.take()
    try:
        with console.step(f"Zensical, in {environment.directory.relative_to(ROOT)}"):
            environment.install()
    except CannotInstall as error:
        console.print(str(error))
        return 1
    with console.step("Stage the pages"):
        stage()
    zensical = [str(environment.python), "-c", _PROGRAM]
    if given.serve:
        return serve([*zensical, "serve", "-f", CONFIG.name, "-a", f"localhost:{given.serve}"])
    with console.step("Build the site") as step:
        step.result, output = build([*zensical, "build", "--clean", "--strict", "-f", CONFIG.name])
        step.passed = not output
    console.print(output or HTML)
    return int(not step.passed)


def build(command: Sequence[str]) -> tuple[str, str]:
    """Build the site. Return what was built, and the program's output if it fails or warns."""
    shutil.rmtree(HTML, ignore_errors=True)
    done = subprocess.run(
        command, cwd=SITE, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
    )
    output = _COLOR.sub("", done.stdout.decode(errors="replace"))
    if done.returncode or _WARNING.search(output):
        return "", output or f"status {done.returncode}"
    for page in (HTML / "reference").glob("*.html"):  # docstrings name pages by the paths of their files
        page.write_text(_FILE.sub(r'<a href="../\1.html">docs/\1.md</a>', page.read_text("utf-8")), encoding="utf-8")
    for page in PAGES.glob("*.md"):
        shutil.copy(page, HTML)  # for what reads llms.txt
    (HTML / "llms.txt").write_text("\n".join(llms_txt()), encoding="utf-8")
    return f"{len([*HTML.rglob('*.html')])} pages", ""


def serve(command: Sequence[str]) -> int:
    """Serve the site, and stage the pages again when one changes, until an interrupt."""
    with subprocess.Popen(command, cwd=SITE, stdin=subprocess.DEVNULL) as process:
        try:
            staged = _times()
            while process.poll() is None:
                time.sleep(_POLL)
                if staged != _times():
                    staged = _times()
                    stage()
        finally:
            process.terminate()
    return process.returncode


def _times() -> dict[str, float]:
    """Return when each source of a page was changed last."""
    return {file: (ROOT / file).stat().st_mtime for file in sources()}


def llms_txt() -> Iterator[str]:
    """Yield the lines of llms.txt: each page of the navigation, with its first paragraph."""
    yield f"# mdsx\n\n> {project()['description']}"
    for title, names in navigation():
        yield f"\n## {title}\n"
        for name in names:
            heading, about = opening((PAGES / name).read_text(encoding="utf-8"))
            # of the reference, Markdown has only names
            shown = f"{name.removesuffix('md')}html" if "/" in name else name
            yield f"- [{heading}]({shown}): {about}" if about else f"- [{heading}]({shown})"
    yield ""


def opening(text: str) -> tuple[str, str]:
    """Return the title of a page, and its first paragraph without links."""
    title, *paragraphs = text.split("\n\n")
    plain = (each for each in paragraphs if re.match(r"[\w*`\[]", each))
    about = " ".join(next(plain, "").split())
    return title.removeprefix("# ").strip(), re.sub(r"\[([^]]+)\]\([^)]*\)", r"\1", about)
