"""What is read: a dataset, a mixture of several, or the columns of several as one."""

from mdsx.datasets.dataset import Dataset, Sample
from mdsx.datasets.mixture import Component, Mixture, add_phase
from mdsx.datasets.zipped import zip

__all__ = ["Component", "Dataset", "Mixture", "Sample", "add_phase", "zip"]
