"""Base classes from Ray Data, if it is installed. Without Ray, placeholders let the module be imported."""

from __future__ import annotations

from mdsx.errors import UsageError

try:
    from ray.data import DataContext, Datasource, read_datasource
    from ray.data.block import BlockAccessor, BlockMetadata
    from ray.data.datasource import Datasink, ReadTask
except ImportError:
    Datasink = Datasource = object
    DataContext = BlockAccessor = BlockMetadata = ReadTask = read_datasource = None

__all__ = [
    "BlockAccessor",
    "BlockMetadata",
    "DataContext",
    "Datasink",
    "Datasource",
    "ReadTask",
    "read_datasource",
    "require_ray",
]


def require_ray() -> None:
    """Raise UsageError if Ray Data is not installed, or too old."""
    if not hasattr(ReadTask, "per_task_row_limit"):
        found = "none" if ReadTask is None else "an older version"
        raise UsageError("this needs Ray Data", found=found, expected="Ray 2.51", hint="pip install 'mdsx[ray]'")
