"""Runs: datasets written in attempts, by tasks of a distributed engine or by a writer that replaces a dataset.

- `job.py`: the settings that all tasks of a run share, and the result of an attempt (`writer/parts.py` makes attempts).
- `commit.py`: the driver, which begins a run and publishes the attempts that count as a dataset.
- `record.py`: the folders of runs, and which runs are alive; `replaced.py`: the dataset that a run replaces.
- `overwrite.py`: the rules of `overwrite=True`; one writer as a run.
- `clean.py`: `mdsx.clean`, which removes the remains of dead runs.
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
