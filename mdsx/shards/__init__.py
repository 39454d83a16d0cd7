"""The shards of datasets: located, opened, verified, and read as columns. See `shards.py` for the room's rules."""

from mdsx.shards.download import DOWNLOAD_TRIES, Hashes, inspect_shard, read_index, stream_shard
from mdsx.shards.gather import Columns, joined, present
from mdsx.shards.selection import Selection
from mdsx.shards.shards import Shards
from mdsx.shards.view import ColumnChoice, Excerpt, View

__all__ = [
    "DOWNLOAD_TRIES",
    "ColumnChoice",
    "Columns",
    "Excerpt",
    "Hashes",
    "Selection",
    "Shards",
    "View",
    "inspect_shard",
    "joined",
    "present",
    "read_index",
    "stream_shard",
]
