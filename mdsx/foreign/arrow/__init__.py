"""Convert between Arrow data and columns. pyarrow is an extra (`pip install 'mdsx[parquet]'`), imported on first use.

- `types`: the table of types. `column_type(arrow_type, nullable=...)` returns the column type for an Arrow type,
  and `arrow_type(kind)` the Arrow type in which a column is returned.
  `has_empty_lists(arrow_type)` finds types that Parquet does not give back.
- `encode`: Arrow -> `format.Encoded`. `arrow_columns(table)` returns the columns for a writer of a table.
  `encode_batch(encoder, table)` takes what `Writer.write_batch` takes, and returns what `ShardBuilder.add` takes:

      encoder = Encoder(schema)
      builder = ShardBuilder(schema, shard_size)
      for encoded in encode_batch(encoder, table):
          builder.add(encoded)
      shard = builder.finish()  # with a shard_size larger than the table, one shard with all of it
- `decode`: stored columns -> an Arrow table (`to_table`). `json_texts` converts JSON of another format to ours.
- `restore`: columns of such a table -> the Arrow types of a kept schema.

The package does no I/O.
"""

from __future__ import annotations

from mdsx.foreign.arrow.decode import json_texts, to_table
from mdsx.foreign.arrow.encode import ArrowData, arrow_columns, encode_batch, is_arrow
from mdsx.foreign.arrow.library import pa
from mdsx.foreign.arrow.restore import KEPT_SCHEMA, can_restore, parse_schema, restore, schema_text, without_null_types
from mdsx.foreign.arrow.slices import slices
from mdsx.foreign.arrow.types import arrow_type, column_type, has_empty_lists

__all__ = [
    "KEPT_SCHEMA",
    "ArrowData",
    "arrow_columns",
    "arrow_type",
    "can_restore",
    "column_type",
    "encode_batch",
    "has_empty_lists",
    "is_arrow",
    "json_texts",
    "pa",
    "parse_schema",
    "restore",
    "schema_text",
    "slices",
    "to_table",
    "without_null_types",
]
