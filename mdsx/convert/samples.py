"""Members of a tar -> samples, as WebDataset groups them, but without losing anything in silence.

- The key is the name up to the first dot after the last slash; what follows is the column, in lower case: of
  `a.b/c.SEG.png` key `a.b/c`, column `seg.png`. A leading `./` belongs to the key.
- Adjacent members of one key are one sample. A key that comes back later in its tar is an error.
- Hidden files (`._0001.jpg`, `.DS_Store`) are left out. A member that has no column (no extension), no bytes of its own
  (a link) or no UTF-8 name is an error, for it may be what a sample lacks.

What is wrong comes out in its place as a value, so that who wants can go on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from mdsx.convert.archive import Member
from mdsx.errors import CorruptError, MdsxError, SampleError

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

    def finish(self, *, torn: bool = False) -> TarSample | SampleError:
        return self.problem or TarSample(self.key, self.members, torn)


def split_name(name: str) -> tuple[str, str]:
    """Key and column of a member's name; the column is empty where there is no extension."""
    folder, slash, base = name.rpartition("/")
    stem, _, column = base.partition(".")
    return folder + slash + stem, column.lower()


def group_samples(items: Iterable[Member | CorruptError], *, file: str) -> Iterator[TarSample | MdsxError]:
    """The samples of a tar from its members, and an error for each that is none and for each damage."""
    group: _Group | None = None
    seen: set[str] = set()
    damaged = False  # just now: what comes next may have lost its beginning
    for item in items:
        if isinstance(item, CorruptError):
            yield item
            if group:
                yield group.finish(torn=True)
            group, damaged = None, True
            continue
        if _hidden(item.name):
            continue
        key, column = split_name(item.name)
        if group is None or key != group.key:
            if group:
                yield group.finish()
            group = _Group(key)
            problem = f"duplicate key: {key!r} was here before; {_ADJACENT}" if key in seen else None
            seen.add(key)
            if damaged:
                problem, damaged = "stands behind damage, which may have taken the sample's beginning", False
        else:
            problem = f"sample has column {column!r} twice" if column in group.members else None
        problem = item.problem or _name_problem(item.name, column) or problem
        if problem and not group.problem:
            group.problem = SampleError(problem, file=file, place=item.place)
        group.members[column] = item
    if group:
        yield group.finish()


def _hidden(name: str) -> bool:
    return name.rpartition("/")[2].startswith(".")


def _name_problem(name: str, column: str) -> str | None:
    if not name.isascii():
        try:
            name.encode()
        except UnicodeEncodeError:
            return "name is not UTF-8"
    return None if column else "has no extension, so no column"
