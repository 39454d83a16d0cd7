"""Datasets as Polars LazyFrames, whose queries request only the columns and samples that they need.

polars is an extra (`pip install 'mdsx[polars]'`), imported on first use. This package does no I/O: the caller of
`lazy_frame` passes a function that reads.
"""

from mdsx.foreign.polars.lazy import Read, lazy_frame
from mdsx.foreign.polars.predicates import condition_of

__all__ = ["Read", "condition_of", "lazy_frame"]
