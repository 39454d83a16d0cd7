"""Convert between bytes and samples: column types, schema, shards, compression and the index. No I/O.

format-spec.md specifies the format. Other packages import only from here.
"""

from mdsx.format import filenames
from mdsx.format.builder import ShardBuilder
from mdsx.format.check import check_shard
from mdsx.format.decode import SampleDecoder, ValuesDecoder, numpy_values, value_decoder, values_decoder, widen_bfloat16
from mdsx.format.encoder import Encoded, Encoder
from mdsx.format.filenames import is_name, split_name
from mdsx.format.frames import (
    FRAME_SIZE,
    HEAD_SIZE,
    TABLE_END,
    FrameReader,
    claimed_raw_size,
    compress,
    decompress_frame,
    first_bytes,
    frame_count,
    parse_seek_table,
    seek_table_size,
)
from mdsx.format.index import MAX_SHARDS, Index, ShardEntry, build_index, check_shard_count, fingerprint
from mdsx.format.index_parser import MdsxFormat, parse_index
from mdsx.format.protocol import (
    Decoder,
    OpenedShard,
    Range,
    RangeReader,
    Reading,
    RowDecoder,
    StoredFormat,
    StoredIndex,
    check_stored,
)
from mdsx.format.rows import NULL, Extents, heap_extents, row_checksum, row_key, shard_checksums
from mdsx.format.salvage import Ranges, Salvage, format_ranges, own_layout, salvage, surplus
from mdsx.format.schema import HEADER_SIZE, Column, Schema
from mdsx.format.shard import (
    Layout,
    Selection,
    ShardView,
    build_header,
    header_row_key,
    parse_header,
    raw_size,
)
from mdsx.format.stored_bytes import Hashes, RawStream
from mdsx.format.strict_json import parse_json
from mdsx.format.types import ColumnType, parse_type

__all__ = [
    "FRAME_SIZE",
    "HEADER_SIZE",
    "HEAD_SIZE",
    "MAX_SHARDS",
    "NULL",
    "TABLE_END",
    "Column",
    "ColumnType",
    "Decoder",
    "Encoded",
    "Encoder",
    "Extents",
    "FrameReader",
    "Hashes",
    "Index",
    "Layout",
    "MdsxFormat",
    "OpenedShard",
    "Range",
    "RangeReader",
    "Ranges",
    "RawStream",
    "Reading",
    "RowDecoder",
    "Salvage",
    "SampleDecoder",
    "Schema",
    "Selection",
    "ShardBuilder",
    "ShardEntry",
    "ShardView",
    "StoredFormat",
    "StoredIndex",
    "ValuesDecoder",
    "build_header",
    "build_index",
    "check_shard",
    "check_shard_count",
    "check_stored",
    "claimed_raw_size",
    "compress",
    "decompress_frame",
    "filenames",
    "fingerprint",
    "first_bytes",
    "format_ranges",
    "frame_count",
    "header_row_key",
    "heap_extents",
    "is_name",
    "numpy_values",
    "own_layout",
    "parse_header",
    "parse_index",
    "parse_json",
    "parse_seek_table",
    "parse_type",
    "raw_size",
    "row_checksum",
    "row_key",
    "salvage",
    "seek_table_size",
    "shard_checksums",
    "split_name",
    "surplus",
    "value_decoder",
    "values_decoder",
    "widen_bfloat16",
]
