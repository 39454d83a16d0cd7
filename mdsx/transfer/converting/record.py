"""The record of a conversion in its output, in `_convert/`: the result of each unit, and what was skipped.

Each part keeps the tallies of its finished units, so that a rerun need not read these again. All skips are counted, and
the first 100 errors of each unit are kept. If anything was skipped, `skipped.json` stays with the finished dataset, so
that a second run of the same command reports the same skips. Its bytes depend only on the source and the options.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import zip_longest

import msgspec

from mdsx import errors
from mdsx.errors import CorruptError, MdsxError, MissingError
from mdsx.format import filenames
from mdsx.storage import Storage, file_of
from mdsx.transfer.converting.plan import ConversionPlan, decode_plan

_KEPT = 100
_SAVE_EVERY = 10.0  # seconds; a rerun reads later units again


@dataclass(frozen=True, slots=True)
class Skip:
    """A stored error."""

    kind: str
    message: str
    file: str | None = None
    place: str | None = None
    found: str | None = None
    expected: str | None = None
    hint: str | None = None

    @classmethod
    def of(cls, error: MdsxError) -> Skip:
        values = error.file, error.place, error.found, error.expected, error.hint
        texts = (None if value is None else _encodable(value) for value in values)
        return cls(type(error).__name__, _encodable(error.message), *texts)

    def error(self) -> MdsxError:
        """Return the error, with the same text, except that lone surrogates are escaped."""
        kind: object = getattr(errors, self.kind, None) if self.kind in errors.__all__ else None
        made = kind if isinstance(kind, type) and issubclass(kind, MdsxError) else MdsxError
        fields = {name: getattr(self, name) for name in ("file", "place", "found", "expected", "hint")}
        return made(self.message, **fields)


def _encodable(value: object) -> str:
    """Return the text of a value. A message may quote a lone surrogate, which JSON in UTF-8 cannot hold."""
    return str(value).encode(errors="backslashreplace").decode()


@dataclass(slots=True)
class Tally:
    """The result of one unit or more: number of `samples`, number `skipped`, the first `skips`, and what the source
    counts (`SampleSource.amounts`)."""

    samples: int = 0
    skipped: int = 0
    skips: list[Skip] = field(default_factory=list)
    amounts: list[int] = field(default_factory=list)

    def skip(self, error: MdsxError, samples: int = 1) -> None:
        self.skipped += samples
        if len(self.skips) < _KEPT:
            self.skips.append(Skip.of(error))

    def count(self, amounts: Sequence[int]) -> None:
        self.amounts = added(self.amounts, amounts)

    def add(self, other: Tally) -> None:
        self.samples += other.samples
        self.skipped += other.skipped
        self.skips += other.skips
        self.count(other.amounts)


def added(some: Sequence[int], more: Sequence[int]) -> list[int]:
    """Return the sums of amounts. Missing amounts count as 0."""
    return [one + other for one, other in zip_longest(some, more, fillvalue=0)]


def total(tallies: Iterable[Tally]) -> Tally:
    """Return the sum of all tallies, with their skips in order."""
    whole = Tally()
    for tally in tallies:
        whole.add(tally)
    return whole


class PartTallies:
    """The tallies of a part's units, in order, kept in storage."""

    def __init__(self, storage: Storage, part: int) -> None:
        self._storage, self._key = storage, filenames.convert_record(part)
        self._saved = time.monotonic()
        self.tallies = self._stored()

    def durable(self, samples: int) -> tuple[int, int]:
        """Return how many units are complete within the first `samples` samples (the durable ones), and their sum."""
        count = durable = 0
        for tally in self.tallies:
            if durable + tally.samples > samples:
                break
            count, durable = count + 1, durable + tally.samples
        return count, durable

    def put(self, place: int, tally: Tally, *, last: bool) -> None:
        self.tallies[place:] = [tally]
        if last or time.monotonic() - self._saved > _SAVE_EVERY:
            if len(self._stored()) <= len(self.tallies):  # otherwise another attempt at this part is further
                _save(self._storage, self._key, self.tallies)
            self._saved = time.monotonic()

    def _stored(self) -> list[Tally]:
        with suppress(MissingError):
            return _load(self._storage, self._key)
        return []

    def total(self, count: int) -> Tally:
        """Return the sum of the first `count` tallies."""
        return total(self.tallies[:count])


def keep_skips(storage: Storage, tally: Tally) -> None:
    """Store the skips of the whole conversion, if there are any."""
    if tally.skipped:
        _save(storage, filenames.CONVERT_SKIPPED, [tally])


def kept_skips(storage: Storage) -> Tally:
    """Return the skips of a conversion that wrote its index, even if it was killed just after that."""
    kept = {entry.key for entry in storage.list(filenames.CONVERT_FOLDER)}
    if filenames.CONVERT_SKIPPED in kept:
        return total(_load(storage, filenames.CONVERT_SKIPPED))
    if filenames.CONVERT_PLAN not in kept:
        return Tally()
    begun = stored_plan(storage)
    return total(PartTallies(storage, part).total(len(begun.units)) for part in range(begun.parts))


def stored_plan(storage: Storage) -> ConversionPlan:
    """Return the plan of an unfinished conversion. Raise MissingError or CorruptError."""
    key = filenames.CONVERT_PLAN
    return decode_plan(storage.get(key).data, file=file_of(storage, key))


def _save(storage: Storage, key: str, tallies: list[Tally]) -> None:
    storage.put(key, msgspec.json.encode(tallies))


def _load(storage: Storage, key: str) -> list[Tally]:
    try:
        return msgspec.json.decode(storage.get(key).data, type=list[Tally])
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise CorruptError(f"not a conversion's tallies: {error}", file=file_of(storage, key)) from None
