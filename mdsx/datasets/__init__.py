"""Datasets to read: one dataset, a mixture of several, or several joined column by column."""

from mdsx.datasets.arrow_types import arrow_type_of
from mdsx.datasets.dataset import Dataset, Sample, dataset_of, decoded, excerpt_of, with_excerpt
from mdsx.datasets.exclusions import Excludes, Held, checked_numbers, extended, held_of
from mdsx.datasets.length_sums import sum_of_lengths
from mdsx.datasets.listed import Listed, fingerprint_of, listed_of, matched, unique_names
from mdsx.datasets.mixture import (
    Component,
    Mixture,
    datasets_of,
    left_out_of,
    numbers_left_out,
    proportions_in,
    spread,
    view_of,
    weights_of,
    with_cache,
)
from mdsx.datasets.run_components import as_in, fitting, renumbered
from mdsx.datasets.zipped import zip

__all__ = [
    "Component",
    "Dataset",
    "Excludes",
    "Held",
    "Listed",
    "Mixture",
    "Sample",
    "arrow_type_of",
    "as_in",
    "checked_numbers",
    "dataset_of",
    "datasets_of",
    "decoded",
    "excerpt_of",
    "extended",
    "fingerprint_of",
    "fitting",
    "held_of",
    "left_out_of",
    "listed_of",
    "matched",
    "numbers_left_out",
    "proportions_in",
    "renumbered",
    "spread",
    "sum_of_lengths",
    "unique_names",
    "view_of",
    "weights_of",
    "with_cache",
    "with_excerpt",
    "zip",
]
