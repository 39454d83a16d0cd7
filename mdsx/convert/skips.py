"""What a conversion skipped, as it is kept: all of it counted, and the first 100 errors of each tar.

Where something was skipped, `_convert/skipped.json` stays beside the finished dataset, so that a second run of the same
command says the same again. Its bytes depend on the tars and the options alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import msgspec

from mdsx import errors
from mdsx.errors import CorruptError, MdsxError

_KEPT = 100


@dataclass(frozen=True, slots=True)
class Skip:
    """An error, as it is kept."""

    kind: str
    message: str
    file: str | None = None
    place: str | None = None
    found: str | None = None
    expected: str | None = None
    hint: str | None = None

    @classmethod
    def of(cls, error: MdsxError) -> Skip:
        found, expected = (None if value is None else str(value) for value in (error.found, error.expected))
        return cls(type(error).__name__, error.message, error.file, error.place, found, expected, error.hint)

    def error(self) -> MdsxError:
        """The error again, with the same text."""
        kind: object = getattr(errors, self.kind, None) if self.kind in errors.__all__ else None
        made = kind if isinstance(kind, type) and issubclass(kind, MdsxError) else MdsxError
        fields = {name: getattr(self, name) for name in ("file", "place", "found", "expected", "hint")}
        return made(self.message, **fields)


@dataclass(slots=True)
class Tally:
    """What tars gave: samples, how much was skipped, and the first of what was."""

    samples: int = 0
    skipped: int = 0
    skips: list[Skip] = field(default_factory=list)

    def skip(self, error: MdsxError) -> None:
        self.skipped += 1
        if len(self.skips) < _KEPT:
            self.skips.append(Skip.of(error))

    def add(self, other: Tally) -> None:
        self.samples += other.samples
        self.skipped += other.skipped
        self.skips += other.skips


def total(tallies: Iterable[Tally]) -> Tally:
    """What all of them gave together, in their order."""
    whole = Tally()
    for tally in tallies:
        whole.add(tally)
    return whole


def encode_tallies(tallies: list[Tally]) -> bytes:
    return msgspec.json.encode(tallies)


def decode_tallies(data: bytes, *, file: str) -> list[Tally]:
    """Raises CorruptError."""
    try:
        return msgspec.json.decode(data, type=list[Tally])
    except msgspec.MsgspecError as error:
        raise CorruptError(f"not a conversion's record: {error}", file=file) from None
