"""The reference: a page for each chapter of docs/reference.md, with the signatures and docstrings of its names.

docs/reference.md has the names alone, since they are read where the repository is hosted, too. mkdocstrings puts in the
rest, from the sources.
"""

from __future__ import annotations

import importlib
import inspect
import itertools
import re
from collections.abc import Iterable, Iterator
from types import FunctionType
from typing import Any

from tools.pages import table

FILE, PAGE = "docs/reference.md", "reference/index.md"
_NAME = re.compile(r"`(mdsx(?:\.\w+)+)`")
_BATCHING = "batcher|buckets|counts_tokens|extras|grouped|grouping|groups|keys|length_columns|nested|of_first|one_group"
_BATCHING += "|own_lengths|packing|rows|rows_of|run|step_samples|with_groups"
INTERNAL = {
    "mdsx.Buckets": _BATCHING,
    "mdsx.Cache": "of|open|same_as",
    "mdsx.MaxTokens": _BATCHING,
    "mdsx.Order": "blocks_of|drawn|pieces_drawn|unshuffled",
    "mdsx.Pack": _BATCHING,
    "mdsx.Pad": f"{_BATCHING}|fields|in_plan|progress|progress_of|reached|resumed|state|steps|window",
    "mdsx.Phase": "after",
    "mdsx.Plan": "complete",
    "mdsx.ShardRepair": "kept",
    "mdsx.engines.ray.Datasink": "get_name|min_bytes_per_write|on_write_.*|write",
    "mdsx.testing.FormatContract": ".*",
    "mdsx.testing.StorageContract": ".*",
    "mdsx.testing.Subject": "by_sample|expected|ours",
    "mdsx.testing.TypeContract": "dataset|test_.*",
    "mdsx.torch.StreamingDataLoader": "sampler",
}
"""Members that other packages of mdsx or an engine use, and users do not; in the contracts, the tests."""
_INHERITING = ("mdsx.Loader", "mdsx.torch.StreamingDataLoader")
"""Classes with public members of a base that is not public."""


def chapters(text: str) -> dict[str, list[str]]:
    """Return the titles of the page's chapters -> the names in each."""
    _, *parts = re.split(r"^## (.*)\n", text, flags=re.MULTILINE)
    return {title: _NAME.findall(body) for title, body in zip(parts[::2], parts[1::2], strict=True)}


def pages(text: str) -> dict[str, str]:
    """Return the pages that docs/reference.md becomes, their names -> Markdown: a list of all, and each chapter."""
    about, found = text.partition("\n## ")[0], chapters(text)
    files = {title: f"{re.sub(r'[^a-z]+', '-', title.lower())}.md" for title in found}
    lists = (f"## [{title}]({files[title]})\n\n{_listed(names)}" for title, names in found.items())
    whole = {f"reference/{files[title]}": "\n".join(_chapter(title, names)) for title, names in found.items()}
    return {PAGE: "\n".join([about, *lists])} | whole


def _listed(names: list[str]) -> str:
    return table(("name", "what it is"), ([f"[`{name}`][{name}]", _first_sentence(name)] for name in names))


def _chapter(title: str, names: list[str]) -> Iterator[str]:
    yield f"# {title}\n"
    for name in names:
        hidden = ["^_", f"^({INTERNAL[name]})$"] if name in INTERNAL else ["^_"]
        filters = ", ".join(f'"!{each}"' for each in hidden)
        inherited = str(name in _INHERITING).lower()
        yield f"::: {name}\n    options:\n      filters: [{filters}]\n      inherited_members: {inherited}\n"


def _first_sentence(name: str) -> str:
    paragraph = " ".join((inspect.getdoc(public(name)) or "").partition("\n\n")[0].split())
    return re.split(r"(?<=[.:])\s", paragraph, maxsplit=1)[0].rstrip(":").replace("|", r"\|")


def aliases(names: Iterable[str]) -> dict[str, str]:
    """Return the aliases of types in the signatures of these public names -> what they stand for."""
    found: dict[str, str] = {}
    for function in itertools.chain.from_iterable(map(_functions, names)):
        for text in function.__annotations__.values():
            for name in re.findall(r"[A-Z]\w+", str(text)):
                meaning = function.__globals__.get(name)
                if not inspect.isclass(meaning) and not re.match(r"None$|typing\.\w+$|.*numpy", repr(meaning)):
                    found[name] = re.sub(r"\b(?:\w+\.)+(?=\w)", "", str(meaning))
    return found


def _functions(name: str) -> Iterator[FunctionType]:
    """Yield a public function, or the methods of a public class and its bases."""
    thing = public(name)
    kinds = inspect.getmro(thing) if inspect.isclass(thing) else ()
    ours = (kind for kind in kinds if kind.__module__.startswith("mdsx."))
    for member in (thing, *itertools.chain.from_iterable(vars(kind).values() for kind in ours)):
        function = getattr(member, "__func__", getattr(member, "fget", member))
        if isinstance(function, FunctionType):
            yield inspect.unwrap(function)


def public(name: str) -> Any:
    """Return what a name such as mdsx.engines.ray.read means."""
    module, _, last = name.rpartition(".")
    return getattr(importlib.import_module(module), last)
