"""The shards of datasets: located, opened, verified, and read as columns. See `shards.py` for the room's rules."""

from mdsx.shards.selection import Columns, Selection, present
from mdsx.shards.shards import Shards, read_index
from mdsx.shards.view import ColumnChoice, Part, View

__all__ = ["ColumnChoice", "Columns", "Part", "Selection", "Shards", "View", "present", "read_index"]
