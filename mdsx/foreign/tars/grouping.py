"""Group the members of a tar into samples, as WebDataset does, but without losing anything silently.

- Adjacent members with the same key form a sample (`names`). A key that occurs again later in its tar is an error.
- A member without a column (no extension), without bytes of its own (a link) or without a UTF-8 name is an error,
  because a sample may lack it, unless it is left out.
- The holes of a sample's members are limited in relation to their stored bytes.

Errors are yielded where they occur, so that a caller can continue after them.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from mdsx.errors import CorruptError, MdsxError, SampleError
from mdsx.foreign.tars.blocks import HOLES_RULE, most_holes, printable
from mdsx.foreign.tars.members import TarMember
from mdsx.foreign.tars.names import Names, is_hidden

SKIP = "--on-error skip leaves out the sample"
_ADJACENT = "a sample's members must be adjacent, as `tar --sort=name` packs them"
_PLAIN = Names()


@dataclass(frozen=True, slots=True)
class TarSample:
    """A key and its members by column. `torn`: damage after the sample may have destroyed some of them."""

    key: str
    members: dict[str, TarMember]
    torn: bool = False


@dataclass(slots=True)
class _Group:
    key: str
    members: dict[str, TarMember] = field(default_factory=dict)
    problem: SampleError | None = None
    stored: int = 0
    holes: int = 0

    def add(self, column: str, member: TarMember) -> None:
        self.members[column] = member
        self.holes += member.holes
        self.stored += len(member.data) - member.holes

    def refuse(self, problem: SampleError) -> None:
        """Make this group an error. Only its first problem is kept."""
        self.problem = problem
        self.members.clear()

    def finish(self, *, torn: bool = False) -> TarSample | SampleError:
        return self.problem or TarSample(self.key, self.members, torn)


def group_samples(
    items: Iterable[TarMember | CorruptError], *, file: str, names: Names = _PLAIN, way_out: str = SKIP
) -> Iterator[TarSample | MdsxError]:
    """Yield the samples of a tar, and an error for each invalid sample and each damaged place."""
    groups = Grouper(file, names, way_out=way_out)
    for item in items:
        if isinstance(item, CorruptError):
            yield item
            if sample := groups.tear():
                yield sample
        elif sample := groups.take(item):
            yield sample
    if sample := groups.finish():
        yield sample


class Grouper:
    """Groups the members of the tar `file` into samples, one member after the other.

    `seen`: the keys of all samples so far. `way_out`: a hint on how to leave out a sample, if possible.
    """

    def __init__(self, file: str, names: Names = _PLAIN, *, way_out: str = SKIP) -> None:
        self.seen: set[str] = set()
        self._file, self._names, self._way_out = file, names, way_out
        self._columns, self._dropped = names.columns, names.dropped
        self._group: _Group | None = None
        self._after_damage = False  # the damage may have destroyed the beginning of the next sample

    @property
    def key(self) -> str | None:
        """Return the key of the present sample."""
        return self._group.key if self._group else None

    def finish(self) -> TarSample | SampleError | None:
        """Return the last sample, or the error of an invalid one; None if there is none."""
        group, self._group = self._group, None
        return group.finish() if group else None

    def tear(self) -> TarSample | SampleError | None:
        """Return the sample before a damaged place."""
        group, self._group, self._after_damage = self._group, None, True
        return group.finish(torn=True) if group else None

    def take(self, member: TarMember) -> TarSample | SampleError | None:
        """Take the next member. If it begins another sample, return the previous one."""
        key, extension = self._names.split(member.name)
        base = member.name.rpartition("/")[2]
        if is_hidden(member.name) or extension in self._dropped or base in self._dropped:
            return None
        if not extension and self._names.others:
            return None
        problem, hint = member.problem or _name_problem(member.name, extension), member.hint
        if problem:
            hint = "; ".join(filter(None, (hint, self._leave_out(member.name, extension))))
        group, finished = self._group, None
        if group is None or key != group.key:
            finished = group.finish() if group else None
            group = self._group = _Group(key)
            if key in self.seen:
                problem = problem or f"duplicate key: the tar has an earlier sample {printable(key)}"
                hint = hint or _ADJACENT
            self.seen.add(key)
            if self._after_damage:
                problem = problem or "follows damage that may have destroyed the beginning of the sample"
                self._after_damage = False
        if group.problem:
            return finished
        column = self._columns.get(extension, extension)
        if not problem and column in group.members:
            problem, hint = self._twice(column, group.members[column], member)
        if not problem:
            group.add(column, member)
            if group.holes > most_holes(group.stored):
                problem = f"sample is sparse: {group.holes:,} bytes of holes, but only {group.stored:,} are stored"
                hint = f"a sample's holes may have {HOLES_RULE}: pack it without --sparse"
        if problem:
            group.refuse(SampleError(problem, file=self._file, place=member.place, hint=hint or None))
        return finished

    def _leave_out(self, name: str, extension: str) -> str:
        """Return a hint on how to leave out members like this one, or their samples."""
        what = extension or name.rpartition("/")[2]
        drop = f"--drop {shlex.quote(what)} leaves out members like it" if what and what.isprintable() else ""
        return "; ".join(filter(None, (drop, self._way_out)))

    def _twice(self, column: str, before: TarMember, member: TarMember) -> tuple[str, str]:
        """Return the problem of two members that become the same column, and the way out."""
        first, second = (self._names.split(each.name)[1] for each in (before, member))
        if first == second:
            return f"sample has column {printable(column)} twice", self._way_out
        problem = f"sample has column {printable(column)} twice: {printable(first)} and {printable(second)} become it"
        return problem, "; ".join(filter(None, (f"--drop {shlex.quote(second)} leaves one out", self._way_out)))


def _name_problem(name: str, extension: str) -> str | None:
    if not name.isascii():
        try:
            name.encode()
        except UnicodeEncodeError:
            return "name is not UTF-8"
    if name.endswith("/"):
        return "is a file whose name ends in a slash: it has no extension, so no column"
    return None if extension else "has no extension, so no column"
