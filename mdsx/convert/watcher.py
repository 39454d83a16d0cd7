"""What a conversion reports while it runs."""

from __future__ import annotations

from collections.abc import Callable

from mdsx.convert.plan import Plan
from mdsx.errors import MdsxError
from mdsx.progress import Progress
from mdsx.warn import warn


class Watcher:
    """Passes a conversion's events on to `watch`, as `Progress`. Called by one thread.

    The command line and the workers override the methods, and receive the events themselves.
    """

    _samples = _size = _of_size = 0

    def __init__(self, watch: Callable[[Progress], object] | None = None) -> None:
        self._watch = watch

    def __call__(self, progress: Progress) -> None:
        if self._watch is not None:
            self._watch(progress)

    def planned(self, plan: Plan) -> None:
        """The sources are there, the columns are known; nothing is written yet."""
        self._of_size = plan.source_bytes
        self.progress(0, 0)

    def progress(self, source_bytes: int, samples: int) -> None:
        """This many more bytes of sources were read, and this many more samples converted."""
        self._size += source_bytes
        self._samples += samples
        self(Progress(self._samples, self._size, self._of_size))

    def skipped(self, error: MdsxError) -> None:
        """Something was skipped: a sample, or a stretch of a damaged tar."""
        self(Progress(self._samples, self._size, self._of_size, problems=(error,)))

    def warned(self, warning: str) -> None:
        """The tars may not be meant as they are read."""
        warn(warning)
