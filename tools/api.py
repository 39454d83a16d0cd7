"""docs/api.md: every public name, from its signature and its docstring."""

from __future__ import annotations

import argparse
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from types import FunctionType
from typing import Any, is_typeddict

import mdsx
import mdsx.torch
from mdsx.dataset import Sample
from mdsx.order import Weight
from mdsx.shards import ColumnChoice, Columns
from mdsx.storage.cache import CacheLike
from mdsx.torch.assembly import Collate, OnError
from mdsx.torch.collation import Uneven

PAGE = Path(__file__).resolve().parent.parent / "docs" / "api.md"
CHAPTERS = {
    "Write": ("Writer", "merge", "convert_tars", "MemberNames", "Conversion"),
    "Read": ("Dataset", "Cache"),
    "Train": ("torch.StreamingDataset", "torch.StreamingDataLoader", "torch.WorkerOptions", "torch.collate"),
    "Mix": ("Mixture", "Component"),
    "Order": ("Shuffle", "Order"),
    "Verify and repair": ("verify", "Verification", "repair", "Repair", "ShardRepair", "Progress"),
}
"""The names of each chapter, in order. The errors follow by themselves."""
INTERNAL = {
    "Cache": {"of", "open"},
    "Dataset": {"of", "shards"},
    "Mixture": {"view", "weights"},
    "Order": {"drawn", "pieces_drawn"},
    "ShardRepair": {"kept"},
}
"""Members that other packages of mdsx use, and users do not."""

_HEAD = """# API

Every public name, from its docstring. `python3 -m tools api` writes this page.
"""
_WIDTH = 100
_ALIASES = {
    "CacheLike": CacheLike, "Collate": Collate, "ColumnChoice": ColumnChoice, "Columns": Columns, "OnError": OnError,
    "Sample": Sample, "Uneven": Uneven, "Weight": Weight,
}  # fmt: skip
_ENTRY = re.compile(r"    (\w+): (.*)")


def run(given: argparse.Namespace) -> int:
    """Write the page."""
    PAGE.write_text(page(), encoding="utf-8")
    return 0


def page() -> str:
    """Return the text of the page."""
    errors = sorted(name for name in mdsx.__all__ if name.endswith("Error"))
    lines = [_HEAD]
    for title, names in {**CHAPTERS, "Errors": tuple(errors)}.items():
        lines.append(f"## {title}\n")
        for name in names:
            lines += _thing(name)
    return "\n".join(lines)


def _thing(name: str) -> Iterator[str]:
    thing: Any = mdsx
    for part in name.split("."):
        thing = getattr(thing, part)
    yield f"### mdsx.{name}\n"
    if not inspect.isclass(thing):
        yield f"```python\n{_signature(name.rpartition('.')[2], thing)}\n```\n"
        yield _text(thing)
        return
    if issubclass(thing, Exception):
        bases = ", ".join(f"`{base.__name__}`" for base in thing.__bases__)
        yield f"A subclass of {bases}.\n"
    elif not is_typeddict(thing):
        yield f"```python\n{_signature(thing.__name__, thing.__init__, bound=True)}\n```\n"
    yield _text(thing)
    for key, member in vars(thing).items():
        public = not key.startswith("_") and key not in INTERNAL.get(thing.__name__, ())
        if public and isinstance(member, property | classmethod | FunctionType):
            yield from _member(f"{thing.__name__}.{key}", member)


def _member(name: str, member: Any) -> Iterator[str]:
    yield f"#### {name}\n"
    if isinstance(member, property):
        yield f"```python\n{name}: {_type(member.fget.__annotations__['return'])}\n```\n"
    else:
        function = member.__func__ if isinstance(member, classmethod) else member
        yield f"```python\n{_signature(name, function, bound=True)}\n```\n"
    yield _text(member)


def _signature(name: str, function: Any, *, bound: bool = False) -> str:
    """Return a function as it is called; `bound`: without its first parameter."""
    found = inspect.signature(function)
    arguments, keyword_only = [], False
    for parameter in list(found.parameters.values())[bound:]:
        if parameter.kind is parameter.KEYWORD_ONLY and not keyword_only:
            arguments.append("*")
            keyword_only = True
        default = "" if parameter.default is parameter.empty else f" = {_shown(parameter.default)}"
        stars = "**" if parameter.kind is parameter.VAR_KEYWORD else ""
        arguments.append(f"{stars}{parameter.name}: {_type(parameter.annotation)}{default}")
    returns = "" if found.return_annotation in (None, "None", found.empty) else f" -> {_type(found.return_annotation)}"
    text = f"{name}({', '.join(arguments)}){returns}"
    if len(text) <= _WIDTH:
        return text
    lines = "".join(f"    {argument},\n" for argument in arguments)
    return f"{name}(\n{lines}){returns}"


def _type(annotation: str) -> str:
    """Return an annotation with aliases spelled out, since users cannot import these."""
    for name, alias in _ALIASES.items():
        full = re.sub(r"(collections\.abc|typing|fractions)\.", "", str(alias)).replace("'", '"')
        annotation = re.sub(rf"\b{name}\b", full, annotation)
    return annotation


def _shown(default: object) -> str:
    return "..." if callable(default) else repr(default).replace("'", '"')


def _text(thing: object) -> str:
    """Return a docstring as Markdown: the entries of its sections become lists."""
    lines, in_section = [], False
    for line in (inspect.getdoc(thing) or "").splitlines():
        if line and not line.startswith(" "):
            in_section = line in ("Args:", "Attributes:", "Returns:", "Raises:")
            lines.append(f"**{line}**\n" if in_section else line)
        elif in_section and (entry := _ENTRY.fullmatch(line)):
            lines.append(f"- `{entry[1]}`: {entry[2]}")
        else:
            lines.append(line.removeprefix(" " * 6) if in_section else line)
    return "\n".join(lines) + "\n"
