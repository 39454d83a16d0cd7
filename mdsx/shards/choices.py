"""Choose samples of a dataset by the values in some columns. Only these columns are read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mdsx.base.arguments import check_count
from mdsx.base.progress import StatusLine
from mdsx.errors import UsageError
from mdsx.order import Marks, Subset, Weight, select_chosen, select_fraction, share_edges, shares_of, stratified_shares
from mdsx.shards.excerpt import DatasetSlice
from mdsx.shards.gather import Columns, as_samples, values_of
from mdsx.shards.scan import scan
from mdsx.shards.value_hashes import check_splits, nulls_of, value_hashes
from mdsx.shards.view import View

_RUN = 2**16  # samples


def choose_by(
    excerpt: DatasetSlice,
    function: Callable[..., Any],
    columns: str | Sequence[str] | None,
    *,
    batched: bool,
    batch_size: int,
    progress: bool,
) -> Subset:
    """Return the samples of `excerpt` for which `function` returns True: see `Dataset.filter`."""
    if isinstance(columns, str):
        columns = [columns]
    check_count("batch_size", batch_size)
    call = _of_batches(function, columns) if batched else _of_samples(function, columns)
    view, marks, done = View([excerpt if columns is None else excerpt.choose(columns)]), Marks(), 0
    with status("filter", int(view.counts.sum()), shown=progress) as reached:
        for run in scan(view, most=batch_size):
            marks.add(call(view.present(run.columns), len(run.samples), done))
            done += len(run.samples)
            reached(done)
    return select_chosen(excerpt.subset, excerpt.shards.index.counts, marks)


def split(
    excerpt: DatasetSlice, shares: Sequence[Weight], seed: int, by: str | None, *, stratify: bool, progress: bool
) -> list[Subset]:
    """Return the samples of `excerpt` in each share: see `Dataset.split`."""
    edges, stored = share_edges(shares), excerpt.shards.index.counts
    if by is None and stratify:
        raise UsageError("stratify=True needs a column", hint='give it as by="label"')
    if by is None:
        return [select_fraction(excerpt.subset, stored, start, stop, seed) for start, stop in pairwise(edges)]
    view, parts, done = View([excerpt.choose([by])]), [Marks() for _ in shares], 0
    (column,) = view.schema.columns
    check_splits(column, excerpt.shards.storage.url)
    count, firsts = int(view.counts.sum()) if stratify else 0, np.cumsum(stored) - stored
    strata, nulls, numbers = np.empty(count, np.uint64), np.empty(count, np.bool_), np.empty(count, np.int64)
    with status("split", int(view.counts.sum()), shown=progress) as reached:
        for run in scan(view, most=_RUN):
            values = view.present(run.columns)[by]
            hashes, here = value_hashes(column, values), slice(done, done + len(run.samples))
            if stratify:
                strata[here], nulls[here], numbers[here] = hashes, nulls_of(values), firsts[run.shard] + run.samples
            else:
                _mark(parts, shares_of(hashes, edges, seed))
            done += len(run.samples)
            reached(done)
    if stratify:
        _mark(parts, stratified_shares(strata, nulls, numbers, edges, seed))
    return [select_chosen(excerpt.subset, stored, marks) for marks in parts]


def _mark(parts: Sequence[Marks], shares: NDArray[np.int64]) -> None:
    for number, marks in enumerate(parts):
        marks.add(shares == number)


_Call = Callable[[Columns, int, int], NDArray[np.bool_]]
"""(columns, number of samples, number of the first one) -> which samples are chosen."""


def _of_samples(function: Callable[..., Any], columns: Sequence[str] | None) -> _Call:
    def call(values: Columns, count: int, first: int) -> NDArray[np.bool_]:
        chosen: list[bool] = []
        try:
            if columns is None:
                samples: Iterable[tuple[Any, ...]] = zip(as_samples(values, count), strict=True)
            else:
                samples = zip(*(values_of(values[name]) for name in columns), strict=True)
            for sample in samples:
                result = function(*sample)
                if result is None:
                    raise UsageError(
                        "the function of filter() must return a bool", found="None", hint="does it lack a return?"
                    )
                chosen.append(bool(result))
        except Exception as error:
            error.add_note(f"mdsx: in the function of filter(), at sample {first + len(chosen)}")
            raise
        return np.array(chosen, np.bool_)

    return call


def _of_batches(function: Callable[..., Any], columns: Sequence[str] | None) -> _Call:
    def call(values: Columns, count: int, first: int) -> NDArray[np.bool_]:
        try:
            result = function(values) if columns is None else function(*(values[name] for name in columns))
            chosen = np.asarray(result)
        except Exception as error:
            error.add_note(f"mdsx: in the function of filter(), at samples {first} to {first + count - 1}")
            raise
        if chosen.dtype != np.bool_ or chosen.shape != (count,):
            raise UsageError(
                "with batched=True, the function of filter() must return a bool for each sample",
                found=f"{chosen.dtype} of shape {list(chosen.shape)}",
                expected=f"bool of shape [{count}]",
            )
        return chosen

    return call


@contextmanager
def status(what: str, total: int, *, shown: bool) -> Iterator[Callable[[int], None]]:
    """Yield a function that is called with the number of samples done; if `shown`, a status line shows it."""
    done = 0

    def reached(samples: int) -> None:
        nonlocal done
        done = samples

    line = StatusLine(lambda: f"{what}: {done:,} of {total:,} samples") if shown else None
    try:
        yield reached
    finally:
        if line is not None:
            line.close()
