"""Members of a tar -> samples, as WebDataset groups them, but without losing anything in silence.

- A member's name is read by `names.py`: its key, and the column that it is. A leading `./` belongs to the key.
- Adjacent members of one key are one sample. A key that comes back later in its tar is an error.
- Hidden files (`._0001.jpg`, `.DS_Store`) and dropped ones are left out. A member that has no column (no extension),
  no bytes of its own (a link) or no UTF-8 name is an error, for it may be what a sample lacks.
- What the members of a sample have in holes is bounded by what is stored of them.

What is wrong comes out in its place as a value, so that who wants can go on.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from mdsx.convert.archive import Member
from mdsx.convert.budget import RULE, most_holes
from mdsx.convert.names import Names, is_hidden
from mdsx.convert.tape import printable
from mdsx.errors import CorruptError, MdsxError, SampleError

_PLAIN = Names()
_ADJACENT = "a sample's members must be adjacent, as `tar --sort=name` packs them"


@dataclass(frozen=True, slots=True)
class TarSample:
    """A key and its members by column. A `torn` one stands next to damage that may have taken members of it."""

    key: str
    members: dict[str, Member]
    torn: bool = False


@dataclass(slots=True)
class _Group:
    key: str
    members: dict[str, Member] = field(default_factory=dict)
    problem: SampleError | None = None
    stored: int = 0
    holes: int = 0

    def add(self, column: str, member: Member) -> None:
        self.members[column] = member
        self.holes += member.holes
        self.stored += len(member.data) - member.holes

    def refuse(self, problem: SampleError) -> None:
        """Of a sample that is none, nothing is held but its first problem."""
        self.problem = problem
        self.members.clear()

    def finish(self, *, torn: bool = False) -> TarSample | SampleError:
        return self.problem or TarSample(self.key, self.members, torn)


def group_samples(
    items: Iterable[Member | CorruptError], *, file: str, names: Names = _PLAIN
) -> Iterator[TarSample | MdsxError]:
    """The samples of a tar from its members, and an error for each that is none and for each damage."""
    group: _Group | None = None
    seen: set[str] = set()
    columns, dropped = names.columns, names.dropped
    damaged = False  # just now: what comes next may have lost its beginning
    for item in items:
        if isinstance(item, CorruptError):
            yield item
            if group:
                yield group.finish(torn=True)
            group, damaged = None, True
            continue
        key, extension = names.split(item.name)
        if is_hidden(item.name) or extension in dropped or item.name.rpartition("/")[2] in dropped:
            continue
        problem, hint = item.problem or _name_problem(item.name, extension), item.hint
        if problem:
            hint = "; ".join(filter(None, (hint, _leave_out(item.name, extension))))
        if group is None or key != group.key:
            if group:
                yield group.finish()
            group = _Group(key)
            if key in seen:
                problem, hint = problem or f"duplicate key: {printable(key)} was here before", hint or _ADJACENT
            seen.add(key)
            if damaged:
                problem, damaged = problem or "follows damage, which may have taken the sample's beginning", False
        if group.problem:
            continue
        column = columns.get(extension, extension)
        if not problem and column in group.members:
            problem, hint = _twice(column, group.members[column], item, names)
        if not problem:
            group.add(column, item)
            if group.holes > most_holes(group.stored):
                problem = f"sample is sparse: {group.holes:,} bytes of holes, but only {group.stored:,} are stored"
                hint = f"a sample's holes may have {RULE}: pack it without --sparse"
        if problem:
            group.refuse(SampleError(problem, file=file, place=item.place, hint=hint or None))
    if group:
        yield group.finish()


def _name_problem(name: str, extension: str) -> str | None:
    if not name.isascii():
        try:
            name.encode()
        except UnicodeEncodeError:
            return "name is not UTF-8"
    if name.endswith("/"):
        return "is a file, although its name ends in a slash: it has no extension, so no column"
    return None if extension else "has no extension, so no column"


def _leave_out(name: str, extension: str) -> str:
    """How members like this one, or their samples, are left out."""
    what = extension or name.rpartition("/")[2]
    drop = f"--drop {shlex.quote(what)} leaves out members like it; " if what and what.isprintable() else ""
    return f"{drop}--on-error skip leaves out the sample"


def _twice(column: str, before: Member, member: Member, names: Names) -> tuple[str, str]:
    """What is wrong where two members of a sample are one column, and the way out."""
    first, second = names.split(before.name)[1], names.split(member.name)[1]
    if first == second:
        return f"sample has column {printable(column)} twice", "--on-error skip leaves the sample out"
    problem = f"sample has column {printable(column)} twice: {printable(first)} and {printable(second)} become it"
    return problem, f"--drop {shlex.quote(second)} leaves one out, --on-error skip leaves out the sample"
