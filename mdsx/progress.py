"""How far a long call has come."""

from __future__ import annotations

from dataclasses import dataclass

from mdsx.errors import MdsxError


@dataclass(frozen=True, slots=True)
class Progress:
    """How far `verify`, `repair` or `convert_tars` has come: they call their `watch` with it, from one thread.

        mdsx.verify(url, watch=lambda progress: print(f"{progress.size / progress.of_size:.0%}"))

    Attributes:
        samples: Samples done.
        size: Bytes read, as they are stored.
        of_size: Bytes to read in all.
        shards: Shards done; 0 in a conversion.
        of_shards: Shards in all; 0 in a conversion.
        problems: Errors found since the last call. After a verification, the `Verification` has all of them.
    """

    samples: int
    size: int
    of_size: int
    shards: int = 0
    of_shards: int = 0
    problems: tuple[MdsxError, ...] = ()
