"""A dataset written in attempts, by the tasks of a distributed engine or by a writer that replaces another dataset.

- `job.py`: what all tasks of a run share, and the result of an attempt at one, which `writer/parts.py` makes.
- `commit.py`: the driver's part: it begins a run, and makes a dataset of the attempts that count.
- `record.py`: the folders of runs, and which runs are alive; `replaced.py`: the dataset that a run replaces.
- `overwrite.py`: what may be replaced by `overwrite=True`, and one writer as a run.
- `clean.py`: `mdsx.clean`, which removes what dead runs left.
"""

from mdsx.writer.runs.clean import Cleaned, Leftover, clean
from mdsx.writer.runs.commit import Driver, Written, aborting, check_place
from mdsx.writer.runs.job import Done, WriteJob
from mdsx.writer.runs.overwrite import Overwriting
from mdsx.writer.runs.record import RENEWED

__all__ = [
    "RENEWED",
    "Cleaned",
    "Done",
    "Driver",
    "Leftover",
    "Overwriting",
    "WriteJob",
    "Written",
    "aborting",
    "check_place",
    "clean",
]
