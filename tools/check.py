"""The check that every change must pass, and the words that read like a translation, which a test searches for."""

from __future__ import annotations

import argparse
import io
import os
import re
import sys
import tokenize
from collections.abc import Iterator, Sequence
from pathlib import Path

from tools.console import Console

ROOT = Path(__file__).resolve().parent.parent
Steps = Sequence[tuple[str, tuple[str, ...]]]  # titles; Python modules with their arguments
_WORKERS = min(len(os.sched_getaffinity(0)) * 3 // 2, 8)  # more than cores: tests wait for servers and processes
_TESTS = ("pytest", "-n", str(_WORKERS), "--dist", "worksteal", "--durations=20")
STEPS: Steps = (
    ("lint (ruff check)", ("ruff", "check", ".")),
    ("format (ruff format)", ("ruff", "format", "--check", ".")),
    ("types (mypy --strict)", ("mypy",)),
    ("tests (pytest)", _TESTS),
)
HEADING = "processor seconds by test module, with those of the processes that it started:"
"""The line of pytest's output from which a terminal shows it too."""
WORDS = {
    r"anew": "again",
    r"belongs? into": "belongs in, must come",
    r"behind(?! (a |the |`)(proxy|server|link))": "after",
    r"for who|of who": "say whom you mean: the caller, the process",
    r"go(es|ing)? on|went on": "continue",
    r"gone(?! wrong)": "removed, ended, lost",
    r"(has|have|had) not(?=\W*$|[.,;:)])": "lacks, does not have",
    r"in the midst": "in the middle, during",
    r"mend(s|ed|ing)?": "repair, fix",
    r"no business of": "internal to",
    r"(?<!\d, )of which": "split the sentence",
    r"shall": "must, should",
    r"so many(?! that)": "that many, how many",
    r"somehow": "say how",
    r"stands?(?! (for|in)\b)(?!-in)": "is",
    r"such that": "so that, that",
    r"tells?(?!( \w+){0,3} apart)|told(?!( \w+){0,3} apart)": "say, report, show",
    r"the making of": "the construction of, to make",
    r"what is missed": "say what",
    r"whoever": "anybody who, the caller",
}
"""Regular expressions, with what to write instead."""
ALLOWED = {
    ("tools/check.py", "*"): "the list",
    ("tests/format/test_one_rule.py", "behind"): "the name of a vector, which never changes",
    ("tests/tools/test_language.py", "*"): "samples of such words",
    ("tests/vectors/bad_indexes.py", "*"): "descriptions in the manifest, which never change",
    ("tests/vectors/bad_shards.py", "*"): "descriptions in the manifest, which never change",
    ("tools/soak/report.py", "of which"): "after a number",
}
"""(file, word or "*"): why it is right there."""
_PATTERN = re.compile("|".join(rf"\b(?:{word})\b" for word in WORDS), re.IGNORECASE)


def steps_of(*, everything: bool = False, install_browser: bool = False) -> Steps:
    """Return the steps of the check, or of everything.

    The tests with Ray and Spark come last and one at a time: each starts a cluster.
    """
    if not everything:
        return STEPS
    return (
        *STEPS,
        ("headless Chromium for tests of pages", ("tools.browser", *["--install"] * install_browser)),
        ("slow tests (pytest -m slow)", (*_TESTS, "-m", "slow")),
        ("the documentation's site (site)", ("tools", "site")),
        ("packages (package --all)", ("tools", "package", "--all")),
        ("tests with engines (pytest -m engines)", ("pytest", "-m", "engines", "--durations=20")),
    )


def run(given: argparse.Namespace) -> int:
    return run_steps(steps_of(everything=given.all, install_browser=given.install_browser))


def run_steps(steps: Steps, root: Path = ROOT) -> int:
    """Run each step in `root`, also after one that failed. Return the exit status: 0 if all of them passed."""
    console = Console()
    failed = [
        title
        for title, command in steps
        if console.run(title, [sys.executable, "-m", *command], root, shown_from=HEADING)
    ]
    console.print(f"FAILED: {', '.join(failed)}" if failed else "All passed.")
    return int(bool(failed))


def findings(root: Path = ROOT) -> Iterator[tuple[str, int, str]]:
    """Yield (file, line, word) for each word of the list in the project's texts."""
    for pattern in ("*.md", "docs/*.md", "examples/*.py", "mdsx/**/*.py", "tests/**/*.py", "tools/**/*.py"):
        for path in sorted(root.glob(pattern)):
            file = path.relative_to(root).as_posix()
            text = path.read_text(encoding="utf-8")
            for line, words in _comments_and_strings(text) if path.suffix == ".py" else enumerate(text.splitlines(), 1):
                for word in (match[0].lower() for match in _PATTERN.finditer(words)):
                    if not {(file, word), (file, "*")} & ALLOWED.keys():
                        yield file, line, word


def _comments_and_strings(source: str) -> Iterator[tuple[int, str]]:
    """Yield each line of a comment or a string, with its number."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type in (tokenize.COMMENT, tokenize.STRING):
            yield from enumerate(token.string.splitlines(), token.start[0])
