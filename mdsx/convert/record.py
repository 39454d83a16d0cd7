"""The record of a conversion in its output, in `_convert/`: its plan, the result of each tar, and what it skipped.

The plan is kept until the dataset is finished, so that a rerun continues this conversion and no other. Each part is a
contiguous run of tars. The number of parts depends only on the sources and on whether there are several processes,
never on how many there are or how fast they are.

Each part keeps the tallies of its finished tars, so that a rerun need not read those again. All skips are counted; the
first 100 errors of each tar are kept. If anything was skipped, `skipped.json` stays with the finished dataset, so that
a second run of the same command reports the same skips. Its bytes depend only on the tars and the options.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field

import msgspec
import xxhash

from mdsx import errors
from mdsx.convert.sources import Source
from mdsx.convert.webdataset import Names
from mdsx.errors import CorruptError, MdsxError, MissingError
from mdsx.format import filenames
from mdsx.storage import Storage

MAX_PARTS = 256


@dataclass(frozen=True, slots=True)
class Plan:
    """One conversion. A single part is written to `out` itself; several are written to `part-NNNNN/` below it."""

    out: str
    sources: tuple[Source, ...]
    columns: Mapping[str, str]
    shard_size: int
    compression: str | None
    names: Names
    nan: str
    on_error: str
    parts: int

    def part_url(self, part: int) -> str:
        return self.out if self.parts == 1 else f"{self.out.rstrip('/')}/{filenames.part(part)}"

    def part_sources(self, part: int) -> tuple[Source, ...]:
        count = len(self.sources)
        return self.sources[part * count // self.parts : (part + 1) * count // self.parts]

    @property
    def source_bytes(self) -> int:
        return sum(source.size for source in self.sources)

    @property
    def digest(self) -> str:
        """Return a hash that differs for conversions to other samples or other shards.

        It depends on the tars' URLs, sizes and content, but not on the times of local files.
        """
        fields = asdict(self)
        for name in ("out", "on_error", "parts"):
            del fields[name]
        fields["sources"] = [source.identity for source in self.sources]
        return xxhash.xxh3_128_hexdigest(msgspec.json.encode(fields))

    def difference(self, other: Plan) -> str | None:
        """Return how `other` differs from this conversion; None if it may continue it."""
        for mine, theirs in ((asdict(self), asdict(other)), (asdict(self.names), asdict(other.names))):
            for name in ("shard_size", "compression", "nan", "key_until", "rename", "drop"):
                if mine.get(name) != theirs.get(name):
                    return f"{name} {theirs[name]}, not {mine[name]}"
        if list(self.columns.items()) != list(other.columns.items()):
            return f"columns {dict(other.columns)}, not {dict(self.columns)}"
        if len(self.sources) != len(other.sources):
            return f"{len(other.sources)} tars, not {len(self.sources)}"
        for old, new in zip(self.sources, other.sources, strict=True):
            if old.identity != new.identity:
                return f"{new.url} has changed" if old.url == new.url else f"{new.url}, not {old.url}"
        return None


def parts_for(sources: int, processes: int) -> int:
    """Return how many parts a new conversion has: one for one process, else one for each tar, up to MAX_PARTS."""
    return 1 if processes == 1 else min(sources, MAX_PARTS)


def encode_plan(plan: Plan) -> bytes:
    return msgspec.json.encode(asdict(plan))


def decode_plan(data: bytes, *, file: str) -> Plan:
    """Return a stored plan. Raise CorruptError."""
    try:
        return msgspec.json.decode(data, type=Plan)
    except msgspec.MsgspecError as error:
        raise CorruptError(f"not a conversion's plan: {error}", file=file) from None


# --- the results of tars

_KEPT = 100
_SAVE_EVERY = 10.0  # seconds; a rerun reads later tars again


@dataclass(frozen=True, slots=True)
class Skip:
    """An error as it is stored."""

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
        """Return the error, with the same text."""
        kind: object = getattr(errors, self.kind, None) if self.kind in errors.__all__ else None
        made = kind if isinstance(kind, type) and issubclass(kind, MdsxError) else MdsxError
        fields = {name: getattr(self, name) for name in ("file", "place", "found", "expected", "hint")}
        return made(self.message, **fields)


@dataclass(slots=True)
class Tally:
    """The result of one tar or more: number of `samples`, number `skipped`, and the first `skips`."""

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
    """Return the sum of all tallies, with their skips in order."""
    whole = Tally()
    for tally in tallies:
        whole.add(tally)
    return whole


class PartTallies:
    """The tallies of a part's tars, in order, kept in storage."""

    def __init__(self, storage: Storage, part: int) -> None:
        self._storage, self._key = storage, filenames.convert_record(part)
        self.tallies: list[Tally] = []
        self._saved = time.monotonic()
        with suppress(MissingError):
            self.tallies = _load(self._storage, self._key)

    def durable(self, samples: int) -> tuple[int, int]:
        """Return how many tars are complete within the first `samples` samples (the durable ones), and their sum."""
        count = durable = 0
        for tally in self.tallies:
            if durable + tally.samples > samples:
                break
            count, durable = count + 1, durable + tally.samples
        return count, durable

    def put(self, place: int, tally: Tally, *, last: bool) -> None:
        self.tallies[place:] = [tally]
        if last or time.monotonic() - self._saved > _SAVE_EVERY:
            _save(self._storage, self._key, self.tallies)
            self._saved = time.monotonic()

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
    begun = decode_plan(storage.get(filenames.CONVERT_PLAN).data, file=f"{storage.url}/{filenames.CONVERT_PLAN}")
    return total(PartTallies(storage, part).total(len(begun.sources)) for part in range(begun.parts))


def _save(storage: Storage, key: str, tallies: list[Tally]) -> None:
    storage.put(key, msgspec.json.encode(tallies))


def _load(storage: Storage, key: str) -> list[Tally]:
    try:
        return msgspec.json.decode(storage.get(key).data, type=list[Tally])
    except msgspec.MsgspecError as error:
        raise CorruptError(f"not a conversion's tallies: {error}", file=f"{storage.url}/{key}") from None
