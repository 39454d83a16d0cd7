"""The shards of datasets: located, opened, verified, and read as columns. See `shards.py` for the rules."""

from mdsx.format import Selection
from mdsx.shards.changes import Cast, Decode, DTypes, Fill, stored_columns
from mdsx.shards.choices import choose_by, split, status
from mdsx.shards.excerpt import ColumnChoice, DatasetSlice
from mdsx.shards.extents import download_shard
from mdsx.shards.formats import OURS, format_of, index_keys, read_index, refuse_foreign, snapshots
from mdsx.shards.gather import Columns, StoredValues, as_samples, joined, present
from mdsx.shards.image_sides import Sides, image_column, stored_sides
from mdsx.shards.length_file import LengthFile, put_length_file, writing_command
from mdsx.shards.lengths import Lengths, lengths_of, name_of_stored
from mdsx.shards.needs import Announcer, SideNeeds
from mdsx.shards.objects import coalesce, gap_in, inspect_shard, retried, stream_shard
from mdsx.shards.row_lengths import column_of, stored_lengths, stored_sum, write_length_file
from mdsx.shards.scan import scan
from mdsx.shards.selections import (
    open_selection,
    put_selection,
    read_selection,
    selection_heads,
    selection_key,
    selections_at,
)
from mdsx.shards.shards import Shards
from mdsx.shards.side_objects import with_side_object
from mdsx.shards.view import View
from mdsx.shards.warm import Warmed, warm
from mdsx.shards.where import check_condition, choose_where

__all__ = [
    "OURS",
    "Announcer",
    "Cast",
    "ColumnChoice",
    "Columns",
    "DTypes",
    "DatasetSlice",
    "Decode",
    "Fill",
    "LengthFile",
    "Lengths",
    "Selection",
    "Shards",
    "SideNeeds",
    "Sides",
    "StoredValues",
    "View",
    "Warmed",
    "as_samples",
    "check_condition",
    "choose_by",
    "choose_where",
    "coalesce",
    "column_of",
    "download_shard",
    "format_of",
    "gap_in",
    "image_column",
    "index_keys",
    "inspect_shard",
    "joined",
    "lengths_of",
    "name_of_stored",
    "open_selection",
    "present",
    "put_length_file",
    "put_selection",
    "read_index",
    "read_selection",
    "refuse_foreign",
    "retried",
    "scan",
    "selection_heads",
    "selection_key",
    "selections_at",
    "snapshots",
    "split",
    "status",
    "stored_columns",
    "stored_lengths",
    "stored_sides",
    "stored_sum",
    "stream_shard",
    "warm",
    "with_side_object",
    "write_length_file",
    "writing_command",
]
