"""docs/compared.md says nothing without a source, and what it says of mdsx is a test that exists."""

from __future__ import annotations

import ast
import re

from tests.guides.page import DOCS

TEXT = (DOCS / "compared.md").read_text(encoding="utf-8")
SOURCES = {
    label: (target, title) for label, target, title in re.findall(r'^\[(.+?)\]: (\S+)(?: "(.+)")?$', TEXT, re.MULTILINE)
}
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in TEXT.splitlines()
    if line.startswith("| ") and not line.startswith("| |")
]
LINK = re.compile(r"\[[^]]+\]\[(.+?)\]")


def test_each_cell_has_a_source_or_a_question_mark() -> None:
    assert len(ROWS) > 50
    wrong = [row[0] for row in ROWS if len(row) != 10 or not all(cell == "?" or LINK.match(cell) for cell in row[1:])]
    assert not wrong


def test_each_source_is_used_and_each_used_one_is_given() -> None:
    assert {label for row in ROWS for cell in row for label in LINK.findall(cell)} == set(SOURCES)


def test_what_mdsx_has_is_a_test() -> None:
    has = [row for row in ROWS if row[1].startswith(("[yes]", "[partly]"))]
    assert len(has) > 50
    assert not [row[0] for row in has if not SOURCES[LINK.findall(row[1])[0]][0].startswith("../tests/")]


def test_each_test_named_exists() -> None:
    named = [(target, title) for target, title in SOURCES.values() if target.startswith("../tests/")]
    assert len(named) > 50
    functions = {
        target: {
            node.name
            for node in ast.walk(ast.parse((DOCS / target).read_text(encoding="utf-8")))
            if isinstance(node, ast.FunctionDef)
        }
        for target, _ in named
    }
    assert not [(target, title) for target, title in named if title not in functions[target]]
