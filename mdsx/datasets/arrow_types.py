"""The Arrow types of a dataset's columns."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from mdsx.datasets.dataset import FIRST, Dataset
from mdsx.foreign.arrow import arrow_type
from mdsx.format import Column


def arrow_type_of(dataset: Dataset, column: Column) -> Any:
    """Return the Arrow type of a column's values. Raise UsageError if there is none."""
    kind = column.type
    if kind.foreign is None or kind.kind == "document":
        return arrow_type(replace(kind, foreign=None))
    first = range(min(FIRST, len(dataset)))
    return dataset.select_columns([column.name]).take(first, as_arrow=True).schema.field(0).type
