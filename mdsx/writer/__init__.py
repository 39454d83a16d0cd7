"""Write a dataset with one writer (`Writer`), or in parts with several (`merge`, `append`). Write lengths, selections
and image sizes of a dataset."""

from mdsx.writer.append import Appended, append
from mdsx.writer.lengths import WrittenLengths, write_lengths
from mdsx.writer.merge import check_one_attempt, check_one_run, join_parts, merge
from mdsx.writer.options import WriterOptions, checked_lengths
from mdsx.writer.parts import write_part
from mdsx.writer.selections import WrittenSelection, write_selection
from mdsx.writer.sizes import WrittenSizes, write_sizes
from mdsx.writer.writer import Writer

__all__ = [
    "Appended",
    "Writer",
    "WriterOptions",
    "WrittenLengths",
    "WrittenSelection",
    "WrittenSizes",
    "append",
    "check_one_attempt",
    "check_one_run",
    "checked_lengths",
    "join_parts",
    "merge",
    "write_lengths",
    "write_part",
    "write_selection",
    "write_sizes",
]
