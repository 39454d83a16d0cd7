"""Write a dataset with one writer (`Writer`), or with several that write a part each (`merge`); and its lengths."""

from mdsx.writer.lengths import WrittenLengths, write_lengths
from mdsx.writer.merge import merge
from mdsx.writer.resume import Options
from mdsx.writer.writer import Writer

__all__ = ["Options", "Writer", "WrittenLengths", "merge", "write_lengths"]
