"""The options `--column NAME=TYPE` and `--rename NEW=OLD`, which many commands share."""

from __future__ import annotations

from collections.abc import Iterable

from mdsx.errors import UsageError, shown


def parse_declared(texts: Iterable[str], renamed: Iterable[str] = (), *, lower: bool = False) -> dict[str, str]:
    """Return the columns that `--column NAME=TYPE` options declare. Raise UsageError.

    With `lower`, for extensions of tars, names become lower case unless they are `renamed`.
    """
    columns: dict[str, str] = {}
    for text in texts:
        name, equals, kind = text.rpartition("=")
        name = name.lower() if lower and name not in renamed else name
        if not equals:
            raise UsageError("--column takes NAME=TYPE", found=shown(text))
        if columns.setdefault(name, kind) != kind:
            raise UsageError(f"column {name!r} is declared twice", found=f"{columns[name]} and {kind}")
    return columns


def parse_renames(texts: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Return the columns that `--rename NEW=OLD[;OLD...]` options rename. Raise UsageError."""
    renames: dict[str, tuple[str, ...]] = {}
    for text in texts:
        column, equals, old = text.partition("=")
        if not (column and equals and old):
            raise UsageError("--rename takes NEW=OLD[;OLD...]", found=shown(text))
        renames[column] = (*renames.get(column, ()), *old.split(";"))
    return renames
