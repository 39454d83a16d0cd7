"""What is read: a dataset, a mixture of several, or the columns of several as one."""

from mdsx.datasets.dataset import Dataset, Sample, dataset_of, decoded, excerpt_of, with_excerpt
from mdsx.datasets.mixture import (
    Component,
    Mixture,
    left_out_of,
    proportions_in,
    view_of,
    weights_of,
    with_cache,
)
from mdsx.datasets.run_components import as_in, fitting, renumbered
from mdsx.datasets.zipped import zip

__all__ = [
    "Component",
    "Dataset",
    "Mixture",
    "Sample",
    "as_in",
    "dataset_of",
    "decoded",
    "excerpt_of",
    "fitting",
    "left_out_of",
    "proportions_in",
    "renumbered",
    "view_of",
    "weights_of",
    "with_cache",
    "with_excerpt",
    "zip",
]
