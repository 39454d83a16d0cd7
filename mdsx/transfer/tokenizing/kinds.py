"""Sources of texts: find each source's kind by its name, and open it."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mdsx.base.braces import expand_braces
from mdsx.datasets import Dataset, Mixture, datasets_of
from mdsx.errors import MissingError, UsageError, restated, shown
from mdsx.format import parse_type
from mdsx.storage import StorageOptions
from mdsx.transfer.converting import Request, SampleSource, open_source

_SUFFIXES = {
    "jsonl": "jsonl",
    "ndjson": "jsonl",
    "json": "jsonl",
    "parquet": "parquet",
    "tar": "tar",
    "tgz": "tar",
    "txt": "text",
    "text": "text",
    "md": "text",
}
_KINDS = (*dict.fromkeys(_SUFFIXES.values()), "dataset")
_COMPRESSED = re.compile(r"\.(gz|gzip|zst|zstd)$", re.IGNORECASE)
_NULLABLE = "str?"  # so that a missing text makes only one document invalid


@dataclass(frozen=True, slots=True)
class Texts:
    """A source of texts: the columns to read, name -> type; `text` is the column with the texts."""

    source: SampleSource
    columns: Mapping[str, str]
    warnings: Sequence[str]
    text: str


def open_texts(
    sources: Sequence[Any],
    kind: str | None,
    *,
    text: str | None,
    keep: Sequence[str],
    columns: Mapping[str, str],
    skip: bool,
    options: StorageOptions | None,
    own: Mapping[str, Any],
) -> Texts:
    """Return the source of some texts. `own`: see `open_source`. Raise MdsxError."""
    sources = [
        each for source in sources for each in (datasets_of(source) if isinstance(source, Mixture) else [source])
    ]
    if kind is not None and kind not in _KINDS:
        raise UsageError("there is no such kind of source", found=shown(kind), expected=", ".join(_KINDS))
    if not sources:
        raise UsageError("no source is named")
    found = kind or _kind_of_all(sources)
    if columns and found == "dataset":
        raise UsageError(
            "a dataset's columns have types already", found=shown(dict(columns)), hint="remove these types"
        )
    text = text or {"tar": "txt"}.get(found, "text")
    if unknown := [name for name in columns if name not in keep]:
        raise UsageError("a type is given for a column that is not kept", found=unknown[0], hint=f"--keep {unknown[0]}")
    given = [source if isinstance(source, Dataset) else os.fspath(source) for source in sources]
    request = Request(given, columns, {}, (), skip, options, [text, *keep])
    try:
        source = open_source(found, request, own)
    except MissingError as error:
        if kind is not None or found != "dataset":
            raise
        hint = "name files, such as FOLDER/*.jsonl, or the folder of a dataset, or give the kind of the files: --kind"
        raise restated(error, hint=f"{error.hint}; {hint}" if error.hint else hint) from None
    return _texts(source, text, found)


def _texts(source: SampleSource, text: str, kind: str) -> Texts:
    """Return the columns to read from a source. Raise UsageError if the column `text` has no texts."""
    columns, warnings = source.columns()
    found = parse_type(columns[text])
    base = found.base if found.shape is None else None
    mixed = kind == "jsonl" and base == "json"
    if base not in ("str", "bytes") and not mixed:
        place, hint = f"column {text!r}", "--text-column names another column"
        raise UsageError(
            "the column has no texts", file=source.files[0].url, place=place, found=columns[text], hint=hint
        )
    if kind in ("jsonl", "tar"):
        columns[text] = _NULLABLE
    return Texts(source, columns, warnings, text)


def _kind_of_all(sources: Sequence[Any]) -> str:
    """Return the kind of some sources. Raise UsageError if it is not the same for all."""
    kinds: dict[str, Any] = {}
    for source in sources:
        for kind in _kinds_of(source):
            kinds.setdefault(kind, source)
    if len(kinds) > 1:
        found = ", ".join(f"{kind}: {shown(source)}" for kind, source in kinds.items())
        hint = "tokenize each to a part, and merge these (docs/writing.md), or give the kind of all: --kind"
        raise UsageError("the sources are of several kinds", found=found, hint=hint)
    return next(iter(kinds))


def _kinds_of(source: Any) -> list[str]:
    """Return the kinds of the files that a source names, each once."""
    if isinstance(source, Dataset):
        return ["dataset"]
    if not isinstance(source, str | os.PathLike):
        message = "a source must be a path, a URL, an mdsx.Dataset or an mdsx.Mixture"
        expected = "one, or a list of them"
        raise UsageError(message, found=shown(source), expected=expected)
    names = expand_braces(os.fspath(source)) or [os.fspath(source)]
    kinds = (_SUFFIXES.get(_COMPRESSED.sub("", name).rpartition(".")[2].lower(), "dataset") for name in names)
    return list(dict.fromkeys(kinds))
