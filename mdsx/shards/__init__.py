"""The shards of one dataset: located, opened, verified, and read as columns. See `shards.py` for the room's rules."""

from mdsx.shards.selection import Columns, Selection, gather, present
from mdsx.shards.shards import Shards, read_index

__all__ = ["Columns", "Selection", "Shards", "gather", "present", "read_index"]
