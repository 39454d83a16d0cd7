"""What is read: a dataset, a mixture of several, or the columns of several as one."""

from mdsx.datasets.dataset import Dataset, Sample, dataset_of, decoded, excerpt_of, with_excerpt
from mdsx.datasets.mixture import Component, Mixture, add_phase, datasets_of, view_of, weights_of, with_cache
from mdsx.datasets.zipped import zip

__all__ = [
    "Component",
    "Dataset",
    "Mixture",
    "Sample",
    "add_phase",
    "dataset_of",
    "datasets_of",
    "decoded",
    "excerpt_of",
    "view_of",
    "weights_of",
    "with_cache",
    "with_excerpt",
    "zip",
]
