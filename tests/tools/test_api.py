"""docs/api.md: complete, and what the docstrings say now."""

from __future__ import annotations

import inspect
import operator
import re
from dataclasses import is_dataclass
from typing import is_typeddict

import pytest

import mdsx
import mdsx.engines.ray
import mdsx.engines.spark
import mdsx.torch
from tools import api

PAGES = {"": mdsx, "torch.": mdsx.torch, "engines.ray.": mdsx.engines.ray, "engines.spark.": mdsx.engines.spark}
NAMES = ["zip"] + [
    f"{prefix}{name}"
    for prefix, page in PAGES.items()
    for name in page.__all__
    if not prefix or getattr(page, name) is not getattr(mdsx, name, None)  # the same in two places
]


def test_the_page_is_up_to_date() -> None:
    assert api.PAGE.read_text(encoding="utf-8") == api.page(), "run `python3 -m tools api`"


def test_the_page_has_each_public_name_once() -> None:
    headings = re.findall(r"^### mdsx\.(\S+)$", api.page(), re.MULTILINE)
    assert sorted(headings) == sorted(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_each_callable_has_few_arguments_by_position(name: str) -> None:
    thing = operator.attrgetter(name)(mdsx)
    if is_typeddict(thing) or name.endswith("Error") or is_dataclass(thing):
        return  # not for users to construct
    parameters = inspect.signature(thing).parameters.values()
    by_position = [given for given in parameters if given.kind is given.POSITIONAL_OR_KEYWORD]
    assert len(by_position) <= (4 if name == "build" else 3)  # build(function, inputs, url, columns)


def test_each_public_member_is_documented() -> None:
    empty = re.findall(r"^#### (\S+)\n\n```python\n.*\n```\n\n\n", api.page(), re.MULTILINE)
    assert not empty
