"""Index existing files, so that they can be read in place: Parquet files, with `index_parquet`; tars, with
`index_tars`; and token files, with `index_megatron`, `index_datatrove` and `index_tokens`."""

from mdsx.transfer.indexing.parquet import Indexed, index_parquet
from mdsx.transfer.indexing.tars import IndexedTars, index_tars
from mdsx.transfer.indexing.tokens import IndexedTokenFiles, index_datatrove, index_megatron, index_tokens

__all__ = [
    "Indexed",
    "IndexedTars",
    "IndexedTokenFiles",
    "index_datatrove",
    "index_megatron",
    "index_parquet",
    "index_tars",
    "index_tokens",
]
