"""Index existing files, so that they are read in place: Parquet, with `index_parquet`."""

from mdsx.indexing.parquet import Indexed, index_parquet

__all__ = ["Indexed", "index_parquet"]
