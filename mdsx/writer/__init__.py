"""Write a dataset: alone (`Writer`), or in parts that are joined afterwards (`merge`)."""

from mdsx.writer.folder import Options
from mdsx.writer.merge import merge
from mdsx.writer.writer import Writer

__all__ = ["Options", "Writer", "merge"]
