"""Read Parquet files: their footers, the index that `mdsx index parquet` makes of them, and row groups as shards of
ours. No I/O.

Other packages import only from here.
"""

from mdsx.parquet.columns import Columns, FileColumns
from mdsx.parquet.footer import TAIL_SIZE, Footer, footer_offset, parse_footer
from mdsx.parquet.group import mean_sizes
from mdsx.parquet.index import ParquetFormat, ParquetIndex
from mdsx.parquet.text import INDEX_KEY, IndexedColumn, IndexedFile, IndexedGroup, build_text, is_key

__all__ = [
    "INDEX_KEY",
    "TAIL_SIZE",
    "Columns",
    "FileColumns",
    "Footer",
    "IndexedColumn",
    "IndexedFile",
    "IndexedGroup",
    "ParquetFormat",
    "ParquetIndex",
    "build_text",
    "footer_offset",
    "is_key",
    "mean_sizes",
    "parse_footer",
]
