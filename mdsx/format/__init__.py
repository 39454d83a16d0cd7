"""Convert between bytes and samples: column types, schema, shards, compression and the index. No I/O.

format-spec.md specifies the format. Other packages import only from here.
"""

from mdsx.format import filenames
from mdsx.format.bases import BASES, EXTENSIONS, IMAGES, MEDIA, NUMBERS, PICTURES, PYTHON
from mdsx.format.casts import always_fits, cast, check_castable, first_outside, given_item, number_type
from mdsx.format.check import check_shard, sample_name
from mdsx.format.conditions import (
    ColumnLength,
    ColumnNull,
    ColumnValue,
    Condition,
    Reference,
    parse_condition,
    references,
)
from mdsx.format.decode import RowDecoder, SampleDecoder
from mdsx.format.encode import Encoder, ShardBuilder, batch_error, check_length
from mdsx.format.encoded import Encoded, JoinedHeap
from mdsx.format.families.binary import BYTES, JPEG, PNG
from mdsx.format.families.floats import FLOAT32, FLOAT64
from mdsx.format.families.integers import BOOL, INT8, INT64, UINT8, UINT16, UINT32, UINT64
from mdsx.format.families.json_text import JSON
from mdsx.format.families.message_pack import MSGPACK
from mdsx.format.families.record import Beginning, Float, Kind, Number, Object
from mdsx.format.families.text import STR
from mdsx.format.file_index import FileIndexParser, is_file_key, seal_file_index
from mdsx.format.filenames import is_name
from mdsx.format.frames import (
    DEFAULT_LEVEL,
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
    SIDES,
    LengthRule,
    constant_length,
    estimated_mean,
    has_sides,
    length_rule,
    length_rules,
    lengths_of_selection,
    lengths_of_sizes,
    values_of_selection,
)
from mdsx.format.lists import as_lists, check_empty_lists
from mdsx.format.numbers import to_items
from mdsx.format.packaged import Codec, as_stored, register
from mdsx.format.protocol import (
    Decoder,
    EstimatesLengths,
    Extent,
    FindsDamage,
    NeedsSideObjects,
    OpenedShard,
    ProjectsColumns,
    Range,
    RangeReader,
    Reading,
    ReadsExtents,
    ReadsLengths,
    ReadsParts,
    ReadsRows,
    ReadsSamples,
    ReadsWhole,
    Receiver,
    SideObject,
    StoredFormat,
    StoredIndex,
    object_sizes,
)
from mdsx.format.records import read_joined, read_records
from mdsx.format.rows import NULL
from mdsx.format.salvage import Ranges, Salvage, format_ranges, own_layout, salvage, surplus
from mdsx.format.schema import HEADER_SIZE, Column, Schema
from mdsx.format.seal import begins_sealed, is_sealed
from mdsx.format.selection import JoinedValues, RowLayout, Rows, SampleLayout, Selection, Values
from mdsx.format.selection_file import MAX_SELECTION_HEAD, SelectionHead, StoredSelection
from mdsx.format.shard import Layout, ShardView, header_row_key, raw_size
from mdsx.format.stored_bytes import Hashes, RawStream
from mdsx.format.truth import Vector, evaluate
from mdsx.format.types import MAX_SPAN, ColumnType, parse_type
from mdsx.format.values import NULL as ENCODED_NULL
from mdsx.format.values import (
    ValueDecoder,
    ValuesDecoder,
    bare_decoder,
    check_items,
    dimensions_encoder,
    field_decoder,
    numpy_values,
    value_decoder,
    value_encoder,
    values_decoder,
)
from mdsx.format.whole import WholeIndex, WholeShard

__all__ = [
    "BASES",
    "BOOL",
    "BYTES",
    "DEFAULT_LEVEL",
    "ENCODED_NULL",
    "EXTENSIONS",
    "FLOAT32",
    "FLOAT64",
    "FRAME_SIZE",
    "HEADER_SIZE",
    "HEAD_SIZE",
    "IMAGES",
    "INT8",
    "INT64",
    "JPEG",
    "JSON",
    "MAX_LENGTH",
    "MAX_SELECTION_HEAD",
    "MAX_SHARDS",
    "MAX_SPAN",
    "MEDIA",
    "MSGPACK",
    "NULL",
    "NUMBERS",
    "PICTURES",
    "PNG",
    "PYTHON",
    "SIDES",
    "STORED_LENGTH",
    "STR",
    "TABLE_END",
    "UINT8",
    "UINT16",
    "UINT32",
    "UINT64",
    "Beginning",
    "Codec",
    "Column",
    "ColumnLength",
    "ColumnNull",
    "ColumnType",
    "ColumnValue",
    "Condition",
    "Decoder",
    "Encoded",
    "Encoder",
    "EstimatesLengths",
    "Extent",
    "FileIndexParser",
    "FindsDamage",
    "Float",
    "Hashes",
    "Index",
    "JoinedHeap",
    "JoinedValues",
    "Kind",
    "Layout",
    "LengthIdentity",
    "LengthRule",
    "LengthTrailer",
    "MdsxFormat",
    "NeedsSideObjects",
    "Number",
    "Object",
    "OpenedShard",
    "ProjectsColumns",
    "Range",
    "RangeReader",
    "Ranges",
    "RawStream",
    "Reading",
    "ReadsExtents",
    "ReadsLengths",
    "ReadsParts",
    "ReadsRows",
    "ReadsSamples",
    "ReadsWhole",
    "Receiver",
    "Reference",
    "Refused",
    "RowDecoder",
    "RowLayout",
    "Rows",
    "Salvage",
    "SampleDecoder",
    "SampleLayout",
    "Schema",
    "Selection",
    "SelectionHead",
    "ShardBuilder",
    "ShardEntry",
    "ShardView",
    "SideObject",
    "StoredFormat",
    "StoredIndex",
    "StoredSelection",
    "ValueDecoder",
    "Values",
    "ValuesDecoder",
    "Vector",
    "WholeIndex",
    "WholeShard",
    "always_fits",
    "as_array",
    "as_lists",
    "as_stored",
    "bare_decoder",
    "batch_error",
    "begins_sealed",
    "build_index",
    "cast",
    "check_castable",
    "check_empty_lists",
    "check_items",
    "check_length",
    "check_shard",
    "check_shard_count",
    "claimed_raw_size",
    "compress",
    "constant_length",
    "describe",
    "dimensions_encoder",
    "each",
    "estimated_mean",
    "evaluate",
    "field_decoder",
    "filenames",
    "first_bytes",
    "first_outside",
    "format_ranges",
    "given_item",
    "has_sides",
    "header_row_key",
    "is_file_key",
    "is_name",
    "is_sealed",
    "join_indexes",
    "length_rule",
    "length_rules",
    "lengths_of_selection",
    "lengths_of_sizes",
    "number_type",
    "numpy_values",
    "object_sizes",
    "own_layout",
    "parse_condition",
    "parse_index",
    "parse_type",
    "raw_size",
    "read_joined",
    "read_records",
    "references",
    "register",
    "salvage",
    "sample_name",
    "seal_file_index",
    "seek_table_size",
    "surplus",
    "to_items",
    "value_decoder",
    "value_encoder",
    "values_decoder",
    "values_of_selection",
]
