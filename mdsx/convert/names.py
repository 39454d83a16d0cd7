"""What a member's name means: the sample's key, and the column, which may be renamed, merged with others, or dropped.

- The key ends at the first dot after the last slash, as WebDataset has it, or at the last dot. What follows, in lower
  case, is the extension: of `a.b/c.SEG.png` key `a.b/c`, extension `seg.png`; up to the last dot `a.b/c.SEG` and `png`.
- The extension is the column, unless `rename` gives it another name. Several extensions may become one column.
- What is dropped is named by its extension, or by its file name (`README`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypedDict

from mdsx.errors import UsageError, shown
from mdsx.format import Schema

KEY = "__key__"
FIRST_DOT, LAST_DOT = "first-dot", "last-dot"


class MemberNames(TypedDict, total=False):
    """How `convert_tars` reads the names of members: a sample's key, a dot, and an extension.

    Attributes:
        key_until: Where the key ends: "first-dot" (the default, as in WebDataset) or "last-dot", for keys with dots in
            them.
        rename: Column -> the extensions that become it: `{"image": ["jpg", "png"]}`, or `{"image": "jpg;png"}`.
        drop: Extensions, or names of files such as "README", to leave out.
    """

    key_until: str
    rename: Mapping[str, str | Sequence[str]]
    drop: str | Sequence[str]


@dataclass(frozen=True, slots=True)
class Names:
    """How members' names are read. `rename` maps a column to the extensions that become it."""

    key_until: str = FIRST_DOT
    rename: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    drop: tuple[str, ...] = ()

    @classmethod
    def parse(
        cls,
        key_until: str = FIRST_DOT,
        rename: Mapping[str, str | Sequence[str]] | None = None,
        drop: str | Sequence[str] = (),
    ) -> Names:
        """Return the options that the caller gave, checked. Raise UsageError."""
        rename = rename or {}
        if key_until not in (FIRST_DOT, LAST_DOT):
            raise UsageError("key_until is unknown", found=shown(key_until), expected=f"{FIRST_DOT} or {LAST_DOT}")
        renamed = {column: tuple(sorted({*map(_extension, _several(rename[column]))})) for column in sorted(rename)}
        dropped = tuple(sorted({*_several(drop)}))
        becomes: dict[str, str] = {}
        for column, extensions in renamed.items():
            if column == KEY:
                raise UsageError(f"column {KEY!r} holds the samples' keys: nothing can be renamed to it")
            Schema.from_columns({column: "bytes"})  # refuses names that no column can have
            if not extensions or not all(extensions):
                raise UsageError("a column is renamed as NEW=OLD[;OLD...]", found=shown(f"{column}={rename[column]}"))
            for extension in extensions:
                if becomes.setdefault(extension, column) != column:
                    raise UsageError(
                        f"extension {extension!r} is renamed twice", found=f"{becomes[extension]}, {column}"
                    )
        for name in dropped:
            if not name or _extension(name) in becomes:
                raise UsageError(f"extension {name!r} is both renamed and dropped" if name else "drop names nothing")
        return cls(key_until, renamed, dropped)

    def check_declared(self, declared: Iterable[str]) -> None:
        """Raises UsageError where a column is declared that nothing can become."""
        columns, dropped = self.columns, self.dropped
        for column in declared:
            if column in self.rename:
                continue
            if column in columns:
                hint = f"declare {columns[column]!r}"
                raise UsageError(f"column {column!r} is declared, but renamed to {columns[column]!r}", hint=hint)
            if column in dropped:
                raise UsageError(f"column {column!r} is declared, but dropped")

    @property
    def columns(self) -> dict[str, str]:
        """The column of each extension that is renamed."""
        return {extension: column for column, extensions in self.rename.items() for extension in extensions}

    @property
    def dropped(self) -> frozenset[str]:
        """What is dropped, as a file name or as an extension."""
        return frozenset((*self.drop, *map(_extension, self.drop)))

    def split(self, name: str) -> tuple[str, str]:
        """Key and extension of a member's name; the extension is empty where there is none."""
        folder, slash, base = name.rpartition("/")
        if self.key_until == FIRST_DOT:
            stem, _, extension = base.partition(".")
        else:
            stem, dot, extension = base.rpartition(".")
            stem, extension = (stem, extension) if dot else (base, "")
        return folder + slash + stem, extension.lower()

    def unused(self, members: Iterable[str]) -> list[str]:
        """A sentence for each dropped name and each renamed column for which none of these `members` is one."""
        files = {name.rpartition("/")[2] for name in members if not is_hidden(name)}
        extensions = dict.fromkeys(self.split(name)[1] for name in sorted(files))
        known = f"there are {', '.join(filter(None, extensions))}"[:300]
        return [
            *(f"--drop {name}: no member has this extension or file name; {known}"
              for name in self.drop if name not in files and _extension(name) not in extensions),
            *(f"--rename {column}={';'.join(old)}: no member has such an extension; {known}"
              for column, old in self.rename.items() if not extensions.keys() & set(old)),
        ]  # fmt: skip


def parse_renames(texts: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """The columns that `--rename NEW=OLD[;OLD...]` options rename."""
    renames: dict[str, tuple[str, ...]] = {}
    for text in texts:
        column, equals, old = text.partition("=")
        if not (column and equals and old):
            raise UsageError("a column is renamed as NEW=OLD[;OLD...]", found=shown(text))
        renames[column] = (*renames.get(column, ()), *old.split(";"))
    return renames


def is_hidden(name: str) -> bool:
    return name.rpartition("/")[2].startswith(".")


def _several(names: str | Sequence[str]) -> list[str]:
    return names.split(";") if isinstance(names, str) else list(names)


def _extension(name: str) -> str:
    return name.removeprefix(".").lower()
