"""Bytes <-> samples: column types, schema, shards and compression, as format-spec.md says. No I/O.

This module is the room's door: other rooms import from here.
"""

from mdsx.format.check import check_shard
from mdsx.format.frames import (
    FRAME_SIZE,
    FrameReader,
    compress,
    decompress_frame,
    frame_count,
    parse_seek_table,
    seek_table_size,
)
from mdsx.format.header import MAGIC, Header, build_header, parse_header, raw_size
from mdsx.format.jsontext import parse_json
from mdsx.format.rows import NULL, heap_extents, row_checksum
from mdsx.format.schema import HEADER_SIZE, Column, Schema
from mdsx.format.shard import ShardView
from mdsx.format.types import ColumnType, parse_type
from mdsx.format.values import numpy_values, value_decoder, widen_bfloat16

__all__ = [
    "FRAME_SIZE",
    "HEADER_SIZE",
    "MAGIC",
    "NULL",
    "Column",
    "ColumnType",
    "FrameReader",
    "Header",
    "Schema",
    "ShardView",
    "build_header",
    "check_shard",
    "compress",
    "decompress_frame",
    "frame_count",
    "heap_extents",
    "numpy_values",
    "parse_header",
    "parse_json",
    "parse_seek_table",
    "parse_type",
    "raw_size",
    "row_checksum",
    "seek_table_size",
    "value_decoder",
    "widen_bfloat16",
]
