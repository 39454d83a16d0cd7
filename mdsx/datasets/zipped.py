"""Join datasets that have the same samples and different columns."""

from __future__ import annotations

import os

from mdsx.datasets.dataset import Dataset, batched_excerpt_of, excerpt_of, with_excerpt
from mdsx.errors import UsageError, shown
from mdsx.order import same_samples


def zip(*datasets: Dataset | str | os.PathLike[str]) -> Dataset:
    """Return one dataset with the columns of all `datasets`: its sample i has the values of sample i of each.

        ds = mdsx.zip("s3://bucket/images", "s3://bucket/scores")
        good = ds.filter(lambda score: score > 0.5, input_columns=["score"], batched=True)  # reads only the scores

    Each dataset is stored, cached and updated on its own, in any format that mdsx reads. `select`, `filter`, `split`
    and `select_columns` read only the datasets that have the columns in question. The result can be used wherever an
    `mdsx.Dataset` can. It has the order of the first dataset, so put the one with the largest samples first. Its `url`
    and `metadata` also come from the first. The fingerprint depends on all datasets.

    Args:
        datasets: `mdsx.Dataset`s, or their URLs. They may be selections of the same sample numbers.

    Raises:
        UsageError: The datasets do not have the same sample numbers, or two have a column of the same name.
    """
    if not datasets:
        raise UsageError("zip needs a dataset")
    opened = []
    for each in datasets:
        if not isinstance(each, Dataset | str | os.PathLike):
            raise UsageError("zip joins mdsx.Datasets, or their URLs", found=shown(each))
        opened.append(each if isinstance(each, Dataset) else Dataset(each))
    first, joined = opened[0], batched_excerpt_of(opened[0])
    for other in opened[1:]:
        excerpt = batched_excerpt_of(other)
        if len(other) != len(first):
            whole = all(len(each) == excerpt_of(each).shards.index.counts.sum() for each in (first, other))
            same = f"select the same numbers of both, such as .select(0, {min(len(first), len(other))})"
            raise UsageError(
                "the datasets have different numbers of samples, so they cannot be joined",
                file=other.url,
                found=len(other),
                expected=f"{len(first)}, as in {first.url}",
                hint=same if whole else "join the whole datasets first, then select, filter or split",
            )
        if not same_samples((joined.subset, joined.shards.index.counts), (excerpt.subset, excerpt.shards.index.counts)):
            raise UsageError(
                "the datasets are selections of different samples, so they cannot be joined",
                file=other.url,
                hint="join the datasets first, then select",
            )
        if double := {column.name for column in joined.schema.columns} & set(other.columns):
            name = min(double)
            raise UsageError(
                "two of the datasets have a column with this name",
                file=other.url,
                place=f"column {name!r}",
                hint=f"choose or rename columns first: .select_columns({{'other_{name}': {name!r}}})",
            )
        joined = joined.join(excerpt)
    return with_excerpt(first, joined)
