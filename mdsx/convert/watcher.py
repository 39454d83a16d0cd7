"""What a conversion tells while it runs."""

from __future__ import annotations

from mdsx.convert.plan import Plan
from mdsx.errors import MdsxError
from mdsx.warn import warn


class Watcher:
    """Is told how a conversion goes on; this one listens to nothing but warnings. Called by one thread."""

    def planned(self, plan: Plan) -> None:
        """The sources are there, the columns are known; nothing is written yet."""

    def progress(self, source_bytes: int, samples: int) -> None:
        """So many more bytes of sources are read, and so many more samples are converted."""

    def skipped(self, error: MdsxError) -> None:
        """Something was skipped: a sample, or a stretch of a damaged tar."""

    def warned(self, warning: str) -> None:
        """The tars may not be meant as they are read."""
        warn(warning)
