"""A LazyFrame that requests columns, samples and a number of rows when a query runs."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from mdsx.errors import UsageError
from mdsx.foreign.polars.predicates import condition_of

Read = Callable[[list[str] | None, str | None, int | None], Iterator[Any]]
"""(columns, condition, rows) -> Arrow tables or batches of these columns (None: all), with the samples among the first
`rows` (None: all) for which a condition of `mdsx.Dataset.filter` is true (None: no condition)."""


def lazy_frame(empty: Callable[[], Any], types: Mapping[str, str], known: Callable[[str], bool], read: Read) -> Any:
    """Return a `polars.LazyFrame` that reads with `read`.

    `empty`: returns an Arrow table without rows, with all columns. `types`: their types. `known`: whether a condition
    can be evaluated. Polars filters the samples again, so a condition may select more samples than match.

    Raise UsageError if Polars is not installed, or too old.
    """
    try:
        import polars as pl
        from polars.io.plugins import register_io_source
    except ImportError as error:
        raise UsageError("LazyFrames need the package polars", hint="pip install 'mdsx[polars]'") from error

    def frames(columns: list[str] | None, predicate: Any, rows: int | None, _: int | None) -> Iterator[Any]:
        condition = None if predicate is None else condition_of(_tree(predicate), types, known)
        for batch in read(columns, condition, rows):
            frame: Any = pl.from_arrow(batch)
            yield frame if predicate is None else frame.filter(predicate)

    found: Any = pl.from_arrow(empty())
    return register_io_source(frames, schema=found.schema, is_pure=True)


def _tree(predicate: Any) -> Any:
    """Return an expression as Polars' JSON; None if Polars cannot write it."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the warning that the form may change: unknown forms are not pushed down
            return json.loads(predicate.meta.serialize(format="json"))
    except Exception:  # an expression with a Python function, or a version without this form
        return None
