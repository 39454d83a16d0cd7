"""The shards of datasets: located, opened, verified, and read as columns. See `shards.py` for the rules."""

from mdsx.format import Selection
from mdsx.shards.download import DOWNLOAD_TRIES, download_shard, inspect_shard, stream_shard
from mdsx.shards.gather import Columns, joined, present
from mdsx.shards.index import read_index
from mdsx.shards.shards import Shards
from mdsx.shards.view import ColumnChoice, Excerpt, View

__all__ = [
    "DOWNLOAD_TRIES",
    "ColumnChoice",
    "Columns",
    "Excerpt",
    "Selection",
    "Shards",
    "View",
    "download_shard",
    "inspect_shard",
    "joined",
    "present",
    "read_index",
    "stream_shard",
]
