"""Read a tar once, from its first byte to its last, and make its pointer shard.

Ordinary members come in runs (runs.py), whose samples become rows with a few NumPy calls. All other samples are read as
in a conversion: one by one, with its errors.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import ne
from typing import Any

import numpy as np
import xxhash
from numpy.typing import NDArray

from mdsx.errors import CorruptError, SampleError, UsageError
from mdsx.foreign.tars.blocks import BLOCK, Budget, Tape
from mdsx.foreign.tars.grouping import Grouper, TarSample
from mdsx.foreign.tars.located import Spans, array_problem, scalar_reader, value_locator
from mdsx.foreign.tars.members import TarMember, member_of, read_headers, read_runs
from mdsx.foreign.tars.names import FIRST_DOT, KEY, Names, is_hidden
from mdsx.foreign.tars.pointers import MAX_SAMPLE, Pointer, PointerBuilder, PointerSchema, Rows, batch_of, is_value
from mdsx.foreign.tars.runs import HeaderRun
from mdsx.foreign.tars.values import SampleReader, parse_npy_header
from mdsx.format import NULL, Encoder, Refused, Schema, parse_type

_CONVERT = "convert the tars with `mdsx convert tar`"
_HIDDEN = re.compile(r"(?:^|[\0/])\.[^/\0]*(?:\0|$)")
_DROPPED = -2


@dataclass(frozen=True, slots=True)
class PointedTar:
    """The result of a pass over a tar: its samples, the XXH3-128 of its bytes (None if they were not read), and its
    pointer shard."""

    samples: int
    hash: str | None
    pointers: bytes


def skim_tar(
    fetch: Callable[[int, int], bytes], *, file: str, size: int, columns: Mapping[str, str], names: Names
) -> PointedTar:
    """Return the pointers of a tar without checksums, from its headers, numbers and arrays alone.

    `fetch` returns bytes [start, stop) of the tar, and maybe more. All headers are checked; the bytes of other members
    are not read.
    """
    tape = _Skim(fetch, file, size, columns, names)
    pointing = _Pointing(None, file, size, columns, names)
    for item in read_headers(tape):
        if isinstance(item, CorruptError):
            raise item
        pointing.take(item)
    builder = pointing.finish()
    return PointedTar(builder.samples, None, builder.build())


class _Skim(Tape):
    """A tar whose members are skipped, except numbers and arrays."""

    def __init__(
        self, fetch: Callable[[int, int], bytes], file: str, size: int, columns: Mapping[str, str], names: Names
    ) -> None:
        budget = Budget()
        budget.stored = size
        super().__init__(iter(()), file, budget)
        self._fetch, self._size, self._names, self._renamed = fetch, size, names, names.columns
        self._wanted = {name for name, kind in columns.items() if name != KEY and parse_type(kind).scalar}
        self._kept, self._start = b"", 0

    def wants(self, name: str) -> bool:
        extension = self._names.split(name)[1]
        return self._renamed.get(extension, extension) in self._wanted

    def read(self, size: int) -> bytes:
        stop = min(self.offset + size, self._size)
        if not self._start <= self.offset <= stop <= self._start + len(self._kept):
            self._start = self.offset
            self._kept = self._fetch(self.offset, stop)
        data = self._kept[self.offset - self._start : stop - self._start]
        self.offset = stop
        return data

    def skip(self, size: int) -> None:
        self.offset = min(self.offset + size, self._size)

    def _unread(self, data: bytes) -> None:
        self.offset -= len(data)


def point_tar(chunks: Iterator[bytes], *, file: str, size: int, columns: Mapping[str, str], names: Names) -> PointedTar:
    """Return the pointers of the tar in `chunks`, which has `size` bytes and the name `file`.

    Raise the first error of the tar: CorruptError, SampleError, or UnsupportedError if it is compressed.
    """
    window = _Window(chunks)
    pointing = _Pointing(window, file, size, columns, names)
    for item in read_runs(iter(window), file=file):
        if isinstance(item, CorruptError):
            raise item
        if isinstance(item, HeaderRun):
            pointing.take_run(item)
        else:
            pointing.take(item)
    builder = pointing.finish()
    return PointedTar(builder.samples, window.hash, builder.build())


class _Window:
    """The chunks of a tar: hashed, and kept as long as a sample may begin in them."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks, self._hasher = chunks, xxhash.xxh3_128()
        self._kept: deque[tuple[int, bytes]] = deque()
        self._end = 0

    @property
    def hash(self) -> str:
        return str(self._hasher.hexdigest())

    def __iter__(self) -> Iterator[bytes]:
        for chunk in self._chunks:
            self._hasher.update(chunk)
            self._kept.append((self._end, chunk))
            self._end += len(chunk)
            self.forget(self._end - MAX_SAMPLE)
            yield chunk

    def forget(self, before: int) -> None:
        """Drop the chunks that end before byte `before` of the tar."""
        while self._kept and self._kept[0][0] + len(self._kept[0][1]) <= before:
            self._kept.popleft()

    def checksum(self, start: int, stop: int) -> int:
        """Return the XXH3-64 of bytes [start, stop) of the tar."""
        hasher = xxhash.xxh3_64()
        for base, chunk in self._kept:
            hasher.update(memoryview(chunk)[max(start - base, 0) : max(stop - base, 0)])
        found: int = hasher.intdigest()
        return found


class _Pointing:
    """The samples of one tar taken so far."""

    def __init__(self, window: _Window | None, file: str, size: int, columns: Mapping[str, str], names: Names) -> None:
        self._window, self._file = window, file
        schema = Schema.from_columns(columns)
        self._builder = PointerBuilder(PointerSchema(schema))
        self._types = {column.name: column.type for column in schema.columns}
        self._reader = SampleReader(columns, file=file, stored=size, convert="`mdsx convert tar` with ")
        self._encoder = Encoder(schema)
        self._groups = Grouper(file, names, way_out="")
        self._runs = _RunRows(self._builder.schema, names)

    def take(self, member: TarMember) -> None:
        """Take the next member."""
        key = self._groups.key
        finished = self._groups.take(member)
        if isinstance(finished, SampleError):
            raise finished
        if finished:
            self._add(finished)
        if self._window and (finished or key is None):
            self._window.forget(member.offset)

    def take_run(self, run: HeaderRun) -> None:
        """Take the members of a run."""
        found = self._runs.split(run)
        if found is None:
            self._take_each(run, range(len(run.names)))
            return
        keys, columns, places = found
        first, last = 0, len(keys)
        while first < last and keys[first] == self._groups.key:
            first += 1
        while last > first and keys[last - 1] == keys[-1]:
            last -= 1
        if first == last:  # one sample or two
            self._take_each(run, places)
            return
        self._take_each(run, places[:first])
        self._finish_sample()
        rows = self._runs.rows(run, keys[first:last], columns[first:last], places[first:last], self._groups.seen)
        if rows is None:
            self._take_each(run, places[first:])
            return
        self._builder.extend(rows)
        self._groups.seen.update(keys[first:last])
        self._take_each(run, places[last:])

    def finish(self) -> PointerBuilder:
        self._finish_sample()
        return self._builder

    def _take_each(self, run: HeaderRun, places: Sequence[int]) -> None:
        for place in places:
            self.take(member_of(run, place))

    def _finish_sample(self) -> None:
        finished = self._groups.finish()
        if isinstance(finished, SampleError):
            raise finished
        if finished:
            self._add(finished)

    def _add(self, sample: TarSample) -> None:
        values = self._reader.read(sample)
        try:
            if self._window:
                self._encoder.sample(values)
        except SampleError as error:
            raise self._reader.misfit(sample, error) from None
        members = [*sample.members.values()]
        start, stop = members[0].offset, members[-1].start + members[-1].size
        for name, member in sample.members.items():
            values[name] = self._pointer(name, member, values[name])
        if members[0].named >= 0:
            values[KEY] = Pointer(members[0].named, members[0].named + len(sample.key.encode()))
        try:
            self._builder.add(start, stop, self._window.checksum(start, stop) if self._window else 0, values)
        except (Refused, UsageError) as error:
            raise SampleError(str(error), file=self._file, place=members[0].place, hint=_CONVERT) from None

    def _pointer(self, name: str, member: TarMember, value: object) -> object:
        """Return a value's entry in the pointer shard: its place, or the value itself."""
        kind = self._types[name]
        if member.start < 0:
            raise self._refusal("is sparse: its bytes are not contiguous in the tar", member)
        if kind.scalar and kind.shape is None:
            return value
        stop = member.start + member.size
        if not kind.scalar:
            return Pointer(member.start, stop)
        header = parse_npy_header(member.data)
        if problem := array_problem(kind, header, member.data):
            raise self._refusal(f"cannot be read in place: {problem}", member)
        return Pointer(member.start + header.start, stop, header.shape)

    def _refusal(self, problem: str, member: TarMember) -> SampleError:
        return SampleError(problem, file=self._file, place=member.place, hint=_CONVERT)


class _RunRows:
    """Makes rows of pointer shards from the samples of a run."""

    def __init__(self, pointers: PointerSchema, names: Names) -> None:
        self._pointers = pointers
        self._columns = pointers.dataset.columns
        self._first_dot, self._dropped = names.key_until == FIRST_DOT, names.dropped
        self._numbers = {column.name: number for number, column in enumerate(self._columns) if column.name != KEY}
        self._renamed = names.columns
        self._known: dict[str, int] = {}  # extension as written -> the column's number, or _DROPPED
        self._locate: dict[int, Callable[[bytes, Spans], Any]] = {
            number: scalar_reader(column.type) if is_value(column.type) else value_locator(column.type)
            for number, column in enumerate(self._columns)
            if column.name != KEY
        }

    def split(self, run: HeaderRun) -> tuple[list[str], list[int], list[int]] | None:
        """Return the keys, column numbers and member numbers of all members that are not dropped. None if a name is not
        ordinary, or has no column."""
        joined = b"\0".join(run.names)
        try:
            text = joined.decode()
        except UnicodeDecodeError:
            return None
        names = text.split("\0")
        if self._first_dot:
            cuts = [name.find(".", name.rfind("/") + 1) for name in names]
        else:
            cuts = [name.rfind(".", name.rfind("/") + 1) for name in names]
        places: Sequence[int] = range(len(names))
        if self._dropped or ((text[0] == "." or "/." in text or "\0." in text) and _HIDDEN.search(text)):
            places = [
                place
                for place, name in enumerate(names)
                if not is_hidden(name) and name.rpartition("/")[2] not in self._dropped
            ]
            names, cuts = [names[place] for place in places], [cuts[place] for place in places]
        if -1 in cuts:
            return None
        known, extensions = self._known, [name[cut + 1 :] for name, cut in zip(names, cuts, strict=True)]
        for extension in set(extensions) - known.keys():
            lower = extension.lower()
            column = self._renamed.get(lower, lower)
            known[extension] = _DROPPED if lower in self._dropped else self._numbers.get(column, -1)
        columns = [known[extension] for extension in extensions]
        keys = [name[:cut] for name, cut in zip(names, cuts, strict=True)]
        if min(columns, default=0) == _DROPPED:
            kept = [place for place, number in enumerate(columns) if number != _DROPPED]
            columns, keys = [columns[place] for place in kept], [keys[place] for place in kept]
            places = [places[place] for place in kept]
        return None if -1 in columns or not keys else (keys, columns, list(places))

    def rows(
        self, run: HeaderRun, keys: list[str], columns: list[int], places: list[int], seen: set[str]
    ) -> Rows | None:
        """Return the rows of complete samples. None if a sample is not ordinary."""
        begins = np.ones(len(keys), bool)
        begins[1:] = np.fromiter(map(ne, keys[1:], keys), bool, len(keys) - 1)
        firsts = np.flatnonzero(begins)
        sample_keys = [keys[first] for first in firsts.tolist()]
        if len(set(sample_keys)) < len(firsts) or not seen.isdisjoint(sample_keys):
            return None
        members = np.full((len(firsts), len(self._columns)), -1)
        at = np.array(places)
        members[np.cumsum(begins) - 1, columns] = at
        if np.count_nonzero(members >= 0) < len(at):  # a column twice
            return None
        lasts = at[np.append(firsts[1:], len(at)) - 1]
        starts, stops = run.headers[at[firsts]], run.starts[lasts] + run.sizes[lasts]
        if (stops - starts > MAX_SAMPLE).any():
            return None
        data = memoryview(run.data)
        spans = zip((starts - run.base).tolist(), (stops - run.base).tolist(), strict=True)
        digests = b"".join([xxhash.xxh3_64_digest(data[start:stop]) for start, stop in spans])
        rows: Rows = {
            "start": starts.astype(np.uint64),
            "checksum": np.frombuffer(digests, ">u8").astype(np.uint64),
            "size": (stops - starts).astype(np.uint32),
        }
        try:
            self._place_values(run, rows, members, starts, at[firsts], sample_keys)
        except (ValueError, Refused, CorruptError):
            return None
        return rows

    def _place_values(
        self,
        run: HeaderRun,
        rows: Rows,
        members: NDArray[np.int64],
        starts: NDArray[np.int64],
        firsts: NDArray[np.int64],
        keys: list[str],
    ) -> None:
        extents = []
        for number, column in enumerate(self._columns):
            extent = np.zeros((len(starts), 2), np.uint32)
            inline = [b""] * len(starts)
            if column.name == KEY:
                extent[:, 0] = run.starts[firsts] - BLOCK - starts
                extent[:, 1] = list(map(len, keys if "".join(keys).isascii() else map(str.encode, keys)))
            else:
                chosen = members[:, number]
                absent = chosen < 0
                if absent.any() and not column.type.nullable:
                    raise ValueError
                there = chosen[~absent]
                begin = run.starts[there] - run.base
                spans: Spans = begin.tolist(), (begin + run.sizes[there]).tolist()
                if number in self._pointers.values:
                    rows[f"value{number}"] = batch_of(column.type, self._locate[number](run.data, spans))
                    continue
                extent[absent, 1] = NULL
                if len(there):
                    found = self._locate[number](run.data, spans)
                    extent[~absent, 0] = run.starts[there] + found.skipped - starts[~absent]
                    extent[~absent, 1] = run.sizes[there] - found.skipped
                    for place, value in zip(np.flatnonzero(~absent).tolist(), found.inline or (), strict=False):
                        inline[place] = value
                if column.type.scalar and column.type.shape is None:  # the value is inline
                    extent[~absent, 0] = 0
            if number in self._pointers.inline:
                rows[f"inline{number}"] = inline
            extents.append(extent)
        if extents:
            rows["extents"] = np.stack(extents, axis=1)
