"""MDS, the format of MosaicML's Streaming, read in place: index version 2 and its shards. This package does no I/O.

An index has no hash of itself. If it has hashes of shards, whole shards are checked against them; otherwise only sizes
and structure can be checked. Pickles are never loaded.
"""

from mdsx.foreign.mds.index import MdsIndex
from mdsx.foreign.mds.index_parser import MdsFormat

__all__ = ["MdsFormat", "MdsIndex"]
