"""Bytes <-> samples: column types, schema, shards, compression and the index, as format-spec.md says. No I/O."""

from mdsx.format.schema import HEADER_SIZE, Column, Schema
from mdsx.format.types import ColumnType, parse_type

__all__ = ["HEADER_SIZE", "Column", "ColumnType", "Schema", "parse_type"]
