"""docs/api.md: every public name, from its signature and its docstring."""

from __future__ import annotations

import argparse
import inspect
import operator
import re
from collections.abc import Iterator
from pathlib import Path
from types import FunctionType
from typing import Any, is_typeddict

import mdsx
import mdsx.engines.ray
import mdsx.engines.spark
import mdsx.torch

PAGE = Path(__file__).resolve().parent.parent / "docs" / "api.md"
CHAPTERS = {
    "Write": (
        "Writer",
        "register",
        "arrow_columns",
        "merge",
        "append",
        "Appended",
        "build",
        "convert",
        "Conversion",
        "tokenize",
        "Tokenization",
        "TokenizationProgress",
    ),
    "Ray and Spark": (
        *(f"engines.ray.{name}" for name in mdsx.engines.ray.__all__),
        *(f"engines.spark.{name}" for name in mdsx.engines.spark.__all__),
    ),
    "Export": ("export", "Export"),
    "Store lengths of samples": ("write_lengths", "WrittenLengths", "write_sizes", "WrittenSizes"),
    "Store selections": ("write_selection", "WrittenSelection"),
    "Index existing files": (
        "index_parquet",
        "Indexed",
        "index_tars",
        "IndexedTars",
        "index_megatron",
        "index_datatrove",
        "index_tokens",
        "IndexedTokenFiles",
    ),
    "Read": ("Dataset", "Cast", "zip", "Cache"),
    "Decode": ("Image", "Audio", "Decoder"),
    "Train": (
        "torch.StreamingDataset",
        "torch.StreamingDataLoader",
        "worker_info",
        "WorkerInfo",
        "torch.collate",
        "Loader",
    ),
    "Pack": ("Pack", "MaxTokens", "Buckets", "Pad"),
    "Plan": ("Plan", "Phase", "Tokens", "Consumed"),
    "Watch a run": ("Stats", "torch.TensorBoardStats", "torch.PrometheusStats"),
    "Mix": ("Mixture", "Component", "change"),
    "Order": ("Shuffle", "Order", "Groups"),
    "Verify and repair": ("verify", "Verification", "repair", "Repair", "ShardRepair", "Progress"),
    "Clean": ("clean", "Cleaned", "Leftover"),
    "Errors": tuple(sorted(name for name in mdsx.__all__ if name.endswith("Error"))),
}
"""The names of each chapter, in order."""
_GROUPED = {"extras", "grouped", "groups", "keys", "length_columns", "nested", "own_lengths", "rows_of", "with_groups"}
_BATCHING = _GROUPED | {"batcher", "grouping", "of_first", "one_group", "packing", "rows", "run"}
_BATCHING |= {"buckets", "counts_tokens", "step_samples"}
INTERNAL = {
    "Buckets": _BATCHING,
    "Cache": {"of", "open", "same_as"},
    "Datasink": {"on_write_start", "on_write_complete", "on_write_failed", "get_name", "write"}
    | {"min_bytes_per_write"},
    "Leftover": {"of"},
    "MaxTokens": _BATCHING,
    "Pad": _BATCHING
    | {"fields", "in_plan", "progress", "progress_of", "reached", "resumed", "state", "steps", "window"},
    "Phase": {"after"},
    "Plan": {"complete"},
    "Order": {"blocks_of", "drawn", "pieces_drawn", "unshuffled"},
    "Pack": _BATCHING,
    "ShardRepair": {"kept"},
    "StreamingDataLoader": {"sampler"},
}
"""Members that other packages of mdsx or an engine use, and users do not."""
_ALIASES = re.compile(
    r"\b(StorageOptions|CacheLike|Collate|ColumnChoice|Columns|Excludes|Number|OnError|Sample|Uneven|Weight)\b"
)


def run(_given: argparse.Namespace) -> int:
    PAGE.write_text(page(), encoding="utf-8")
    return 0


def page() -> str:
    about = (
        f"Every public name of mdsx {mdsx.__version__}, from its docstring. `python3 -m tools api` writes this page."
    )
    parts = [f"# API\n\n{about}\n"]
    for title, names in CHAPTERS.items():
        parts.append(f"## {title}\n")
        for name in names:
            parts += _name(name)
    return "\n".join(parts)


def _name(name: str) -> Iterator[str]:
    thing = operator.attrgetter(name)(mdsx)
    yield f"### mdsx.{name}\n"
    if not inspect.isclass(thing):
        yield _signature(thing.__name__, thing)
    elif issubclass(thing, Exception):
        yield f"A subclass of {', '.join(f'`{base.__name__}`' for base in thing.__bases__)}.\n"
    elif not is_typeddict(thing) and not getattr(thing, "_is_protocol", False):
        made = thing.__init__ if isinstance(thing.__init__, FunctionType) else thing.__new__
        yield _signature(thing.__name__, made, bound=True)
    yield _text(thing)
    for key, member in vars(thing).items() if inspect.isclass(thing) else ():
        public = not key.startswith("_") and key not in INTERNAL.get(thing.__name__, ())
        if public and isinstance(member, property | classmethod | FunctionType):
            title = f"{thing.__name__}.{key}"
            yield f"#### {title}\n"
            if isinstance(member, property):
                yield f"```python\n{title}: {_type(member.fget.__annotations__['return'], member.fget)}\n```\n"
            else:
                yield _signature(title, getattr(member, "__func__", member), bound=True)
            yield _text(member)


def _signature(name: str, function: Any, *, bound: bool = False) -> str:
    """Return a function as it is called; `bound`: without its first parameter."""
    found, arguments = inspect.signature(function), list[str]()
    for each in list(found.parameters.values())[bound:]:
        if each.kind is each.KEYWORD_ONLY and "*" not in arguments:
            arguments.append("*")
        shown = "..." if callable(each.default) else repr(each.default).replace("'", '"')
        default = "" if each.default is each.empty else f" = {shown}"
        name_only = each.replace(annotation=each.empty, default=each.empty)  # with its asterisks
        arguments.append(f"{name_only}: {_type(each.annotation, function)}{default}")
    returns = found.return_annotation
    end = "" if returns in (None, "None", found.empty) else f" -> {_type(returns, function)}"
    text = f"{name}({', '.join(arguments)}){end}"
    if len(text) > 100:
        lines = "".join(f"    {argument},\n" for argument in arguments)
        text = f"{name}(\n{lines}){end}"
    return f"```python\n{text}\n```\n"


def _type(annotation: str, function: Any) -> str:
    """Return an annotation of a function with aliases spelled out, since users cannot import these."""
    names = inspect.unwrap(function).__globals__
    text = _ALIASES.sub(lambda alias: str(names[alias[0]]), annotation)
    return re.sub(r"(collections\.abc|typing|fractions)\.", "", text).replace("'", '"')


def _text(thing: object) -> str:
    """Return a docstring as Markdown: the entries of its sections become lists."""
    lines, in_section = [], False
    for line in (inspect.getdoc(thing) or "").splitlines():
        if line and not line.startswith(" "):
            in_section = line in ("Args:", "Attributes:", "Returns:", "Raises:")
            lines.append(f"**{line}**\n" if in_section else line)
        elif in_section:
            lines.append(re.sub(r"^    (\w+): |^      ", lambda found: f"- `{found[1]}`: " if found[1] else "", line))
        else:
            lines.append(line)
    return "\n".join(lines) + "\n"
