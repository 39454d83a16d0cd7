"""The shards of datasets: located, opened, verified, and read as columns. See `shards.py` for the room's rules."""

from mdsx.shards.download import read_index
from mdsx.shards.gather import Columns, present
from mdsx.shards.selection import Selection
from mdsx.shards.shards import Shards, VerifyCached
from mdsx.shards.view import ColumnChoice, Part, View

__all__ = [
    "ColumnChoice",
    "Columns",
    "Part",
    "Selection",
    "Shards",
    "VerifyCached",
    "View",
    "present",
    "read_index",
]
