"""mdsx in training: needs PyTorch (`pip install 'mdsx[torch]'`)."""

try:
    import torch as _torch  # noqa: F401  to say what is missing
except ModuleNotFoundError as error:
    raise ModuleNotFoundError("mdsx.torch needs PyTorch: pip install 'mdsx[torch]'") from error

from mdsx.loader import Stats
from mdsx.torch.collation import collate
from mdsx.torch.dataset import StreamingDataset
from mdsx.torch.loader import StreamingDataLoader
from mdsx.torch.monitors import PrometheusStats, TensorBoardStats

__all__ = [
    "PrometheusStats",
    "Stats",
    "StreamingDataLoader",
    "StreamingDataset",
    "TensorBoardStats",
    "collate",
]
