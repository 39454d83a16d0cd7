"""mdsx in training: needs PyTorch (`pip install 'mdsx[torch]'`)."""

try:
    import torch as _torch  # noqa: F401  to say what is missing
except ModuleNotFoundError as error:
    raise ModuleNotFoundError("mdsx.torch needs PyTorch: pip install 'mdsx[torch]'") from error

from mdsx.loader import RankOptions, Stats
from mdsx.torch.collation import collate
from mdsx.torch.dataset import DatasetOptions, StreamingDataset
from mdsx.torch.loader import LoaderOptions, StreamingDataLoader
from mdsx.torch.monitors import PrometheusStats, TensorBoardStats
from mdsx.torch.workers import WorkerOptions

__all__ = [
    "DatasetOptions",
    "LoaderOptions",
    "PrometheusStats",
    "RankOptions",
    "Stats",
    "StreamingDataLoader",
    "StreamingDataset",
    "TensorBoardStats",
    "WorkerOptions",
    "collate",
]
