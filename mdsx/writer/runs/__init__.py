"""A dataset written in attempts, by the tasks of a distributed engine or by a writer that replaces another dataset.

- `job.py`: what all tasks of a run share, and one attempt at a task.
- `commit.py`: the driver's part: it begins a run, and makes a dataset of the attempts that count.
- `record.py`: the signs of life of a run; `attempts.py`: what attempts left; `replaced.py`: the dataset that a run
  replaces.
- `overwrite.py`: what may be replaced by `overwrite=True`, and one writer as a run.
"""

from mdsx.writer.runs import replaced
from mdsx.writer.runs.attempts import Attempts, attempts_at, folders_of, is_finished, remove_files, runs_of
from mdsx.writer.runs.commit import Driver, Written, aborting, check_place
from mdsx.writer.runs.job import RUN, Done, Job
from mdsx.writer.runs.overwrite import Overwriting

__all__ = [
    "RUN",
    "Attempts",
    "Done",
    "Driver",
    "Job",
    "Overwriting",
    "Written",
    "aborting",
    "attempts_at",
    "check_place",
    "folders_of",
    "is_finished",
    "remove_files",
    "replaced",
    "runs_of",
]
