"""The guides name what exists: functions and arguments of mdsx, and the same arguments as the same."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

import mdsx
from mdsx.torch import StreamingDataLoader, StreamingDataset
from tests.guides.page import DOCS, Page, parameters

SAME: dict[tuple[str, str], Callable[..., Any]] = {
    ("from-webdataset", "WebDataset"): StreamingDataset,
    ("from-webdataset", "WebLoader"): StreamingDataLoader,
    ("from-litdata", "StreamingDataset"): StreamingDataset,
    ("from-litdata", "StreamingDataLoader"): StreamingDataLoader,
    ("from-litdata", "optimize"): mdsx.build,
    ("from-hf-datasets", "DataLoader"): StreamingDataLoader,
}
"""(page, table) -> the function of mdsx that the table compares with."""


@pytest.mark.parametrize(("page", "table"), SAME)
def test_an_argument_is_the_same_if_and_only_if_ours_has_its_name(page: str, table: str) -> None:
    ours = set(parameters(SAME[page, table]))
    same = {name for name, (instead, *_) in Page(page).rows(table).items() if re.match("the same\\b", instead)}
    assert same == ours & Page(page).rows(table).keys()


@pytest.mark.parametrize("page", sorted(path.stem for path in DOCS.glob("from-*.md")))
def test_each_guide_has_the_same_frame(page: str) -> None:
    program = ["A program, before and after", "Before", "After", "Convert the data"]
    assert Page(page).headings[:6] == [*program, "Differences in behaviour", "Switch in the middle of a run"]


@pytest.mark.parametrize("page", sorted(path.name for path in DOCS.glob("from-*.md")))
def test_names_of_mdsx_exist(page: str) -> None:
    text = (DOCS / page).read_text(encoding="utf-8")
    named = re.findall(r"\bmdsx\.((?:torch\.)?\w+)(?:\.(\w+))?(?:\(([^()]*)\))?", text)
    assert len(named) > 10
    for name, member, arguments in named:
        found: Any = mdsx
        for part in filter(None, (*name.split("."), member)):
            found = getattr(found, part)
        if arguments:
            ours = set(parameters(found))
            assert not set(re.findall(r"\b(\w+)=", arguments)) - ours, (name, arguments)
