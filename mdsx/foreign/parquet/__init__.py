"""Read Parquet files: their footers, the index that `mdsx index parquet` makes, and row groups as shards in our format.
Also write Parquet files. This package does no I/O.

Other packages import only from here.
"""

from mdsx.foreign.parquet.columns import Columns, FileColumns
from mdsx.foreign.parquet.footer import Footer, read_footer
from mdsx.foreign.parquet.group import mean_sizes, read_batches
from mdsx.foreign.parquet.index import ParquetFormat, ParquetIndex
from mdsx.foreign.parquet.text import INDEX_KEY, IndexedColumn, IndexedFile, IndexedGroup, build_text
from mdsx.foreign.parquet.write import ParquetFile

__all__ = [
    "INDEX_KEY",
    "Columns",
    "FileColumns",
    "Footer",
    "IndexedColumn",
    "IndexedFile",
    "IndexedGroup",
    "ParquetFile",
    "ParquetFormat",
    "ParquetIndex",
    "build_text",
    "mean_sizes",
    "read_batches",
    "read_footer",
]
