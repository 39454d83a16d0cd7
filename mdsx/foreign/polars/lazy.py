"""A LazyFrame that asks for columns, samples and a number of rows when a query runs."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from mdsx.errors import UsageError
from mdsx.foreign.polars.predicates import condition_of

Read = Callable[[list[str] | None, str | None, int | None], Iterator[Any]]
"""(columns, condition, rows) -> Arrow tables or batches of these columns (None: all), of those of the first `rows`
samples (None: of all) for which a condition of `mdsx.Dataset.filter` is true (None: all of them)."""


def lazy_frame(empty: Any, types: Mapping[str, str], known: Callable[[str], bool], read: Read) -> Any:
    """Return a `polars.LazyFrame` of what `read` returns.

    `empty`: an Arrow table without rows, with all columns. `types`: the type of each. `known`: whether a condition can
    be evaluated. All that is read is filtered by Polars once more, so a condition may choose more samples than match.

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

    found: Any = pl.from_arrow(empty)
    return register_io_source(frames, schema=found.schema, is_pure=True)


def _tree(predicate: Any) -> Any:
    """Return an expression as Polars writes it as JSON; None if it does not."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that the form may change: what is not understood is not pushed
            return json.loads(predicate.meta.serialize(format="json"))
    except Exception:  # an expression with a function of Python, or a version without this form
        return None
