"""Convert between bytes and samples: column types, schema, shards, compression and the index. No I/O.

format-spec.md specifies the format. Other packages import only from here.
"""

from mdsx.format import filenames
from mdsx.format.check import check_shard, sample_name
from mdsx.format.decode import SampleDecoder, ValuesDecoder, numpy_values, value_decoder, values_decoder
from mdsx.format.encode import Encoded, Encoder, Heap, ShardBuilder, batch_error, check_length
from mdsx.format.file_index import FileIndexParser, is_file_key, seal_file_index
from mdsx.format.filenames import is_name
from mdsx.format.frames import (
    FRAME_SIZE,
    HEAD_SIZE,
    TABLE_END,
    claimed_raw_size,
    compress,
    first_bytes,
    seek_table_size,
)
from mdsx.format.index import MAX_SHARDS, Index, ShardEntry
from mdsx.format.index_parser import MdsxFormat, parse_index
from mdsx.format.index_writer import build_index, check_shard_count, join_indexes
from mdsx.format.inputs import Refused, as_array, describe, each
from mdsx.format.length_file import STORED_LENGTH, LengthIdentity, LengthTrailer
from mdsx.format.lengths import (
    MAX_LENGTH,
    LengthRule,
    constant_length,
    estimated_mean,
    length_rule,
    lengths_of_selection,
    lengths_of_sizes,
)
from mdsx.format.lists import as_lists, check_empty_lists
from mdsx.format.numbers import to_items
from mdsx.format.protocol import (
    Decoder,
    OpenedShard,
    Range,
    RangeReader,
    Reading,
    Reads,
    RowDecoder,
    SideObject,
    StoredFormat,
    StoredIndex,
    WholeShards,
    check_stored,
)
from mdsx.format.records import read_joined, read_records
from mdsx.format.rows import NULL
from mdsx.format.salvage import Ranges, Salvage, format_ranges, own_layout, salvage, surplus
from mdsx.format.schema import HEADER_SIZE, Column, Schema
from mdsx.format.seal import begins_sealed, is_sealed
from mdsx.format.selection import JoinedValues, RowLayout, Rows, SampleLayout, Selection, Values
from mdsx.format.shard import Layout, ShardView, header_row_key, raw_size
from mdsx.format.stored_bytes import Hashes, RawStream
from mdsx.format.strict_json import parse_json
from mdsx.format.types import MAX_SPAN, SCALARS, ColumnType, parse_type
from mdsx.format.values import IMAGES, dimensions_encoder, value_encoder
from mdsx.format.values import NULL as ENCODED_NULL

__all__ = [
    "ENCODED_NULL",
    "FRAME_SIZE",
    "HEADER_SIZE",
    "HEAD_SIZE",
    "IMAGES",
    "MAX_LENGTH",
    "MAX_SHARDS",
    "MAX_SPAN",
    "NULL",
    "SCALARS",
    "STORED_LENGTH",
    "TABLE_END",
    "Column",
    "ColumnType",
    "Decoder",
    "Encoded",
    "Encoder",
    "FileIndexParser",
    "Hashes",
    "Heap",
    "Index",
    "JoinedValues",
    "Layout",
    "LengthIdentity",
    "LengthRule",
    "LengthTrailer",
    "MdsxFormat",
    "OpenedShard",
    "Range",
    "RangeReader",
    "Ranges",
    "RawStream",
    "Reading",
    "Reads",
    "Refused",
    "RowDecoder",
    "RowLayout",
    "Rows",
    "Salvage",
    "SampleDecoder",
    "SampleLayout",
    "Schema",
    "Selection",
    "ShardBuilder",
    "ShardEntry",
    "ShardView",
    "SideObject",
    "StoredFormat",
    "StoredIndex",
    "Values",
    "ValuesDecoder",
    "WholeShards",
    "as_array",
    "as_lists",
    "batch_error",
    "begins_sealed",
    "build_index",
    "check_empty_lists",
    "check_length",
    "check_shard",
    "check_shard_count",
    "check_stored",
    "claimed_raw_size",
    "compress",
    "constant_length",
    "describe",
    "dimensions_encoder",
    "each",
    "estimated_mean",
    "filenames",
    "first_bytes",
    "format_ranges",
    "header_row_key",
    "is_file_key",
    "is_name",
    "is_sealed",
    "join_indexes",
    "length_rule",
    "lengths_of_selection",
    "lengths_of_sizes",
    "numpy_values",
    "own_layout",
    "parse_index",
    "parse_json",
    "parse_type",
    "raw_size",
    "read_joined",
    "read_records",
    "salvage",
    "sample_name",
    "seal_file_index",
    "seek_table_size",
    "surplus",
    "to_items",
    "value_decoder",
    "value_encoder",
    "values_decoder",
]
