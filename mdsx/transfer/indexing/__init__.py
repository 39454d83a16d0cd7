"""Index existing files, so that they are read in place: Parquet, with `index_parquet`, and tars, with `index_tars`."""

from mdsx.transfer.indexing.parquet import Indexed, index_parquet
from mdsx.transfer.indexing.tars import IndexedTars, index_tars

__all__ = ["Indexed", "IndexedTars", "index_parquet", "index_tars"]
