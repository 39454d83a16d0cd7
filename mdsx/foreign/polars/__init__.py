"""Datasets as LazyFrames of Polars, whose queries say which columns and samples they need.

polars is an extra (`pip install 'mdsx[polars]'`), imported on first use. Nothing here does I/O: who calls `lazy_frame`
gives what reads.
"""

from mdsx.foreign.polars.lazy import Read, lazy_frame
from mdsx.foreign.polars.predicates import condition_of

__all__ = ["Read", "condition_of", "lazy_frame"]
