"""How the names of members become keys and columns, as in WebDataset.

- A member's key ends at the first dot after the last slash, as in WebDataset, or at the last dot. The rest of the name,
  in lower case, is the extension: `a.b/c.SEG.png` has key `a.b/c` and extension `seg.png`, or, up to the last dot, key
  `a.b/c.SEG` and extension `png`. A leading `./` belongs to the key.
- The extension is the column, unless `rename` gives it another name. Several extensions may become one column.
- Hidden files (`._0001.jpg`, `.DS_Store`) are left out, and so are the extensions and file names (`README`) in `drop`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from mdsx.errors import UsageError, shown
from mdsx.format import BYTES, Schema

KEY = "__key__"
FIRST_DOT, LAST_DOT = "first-dot", "last-dot"


@dataclass(frozen=True, slots=True)
class Names:
    """How members' names become keys and columns. `rename` maps a column to the extensions that become it. With
    `others`, members without an extension are left out, because they belong to no sample."""

    key_until: str = FIRST_DOT
    rename: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    drop: tuple[str, ...] = ()
    others: bool = False

    @classmethod
    def parse(
        cls,
        key_until: str = FIRST_DOT,
        rename: Mapping[str, str | Sequence[str]] | None = None,
        drop: str | Sequence[str] = (),
    ) -> Names:
        """Return the caller's options, checked. Raise UsageError."""
        rename = rename or {}
        if key_until not in (FIRST_DOT, LAST_DOT):
            raise UsageError("key_until is unknown", found=shown(key_until), expected=f"{FIRST_DOT} or {LAST_DOT}")
        renamed = {column: tuple(sorted({*map(_extension, _several(rename[column]))})) for column in sorted(rename)}
        dropped = tuple(sorted({*_several(drop)}))
        becomes: dict[str, str] = {}
        for column, extensions in renamed.items():
            if column == KEY:
                raise UsageError(f"column {KEY!r} holds the samples' keys: nothing can be renamed to it")
            Schema.from_columns({column: BYTES.name})  # refuses names that no column can have
            if not extensions or not all(extensions):
                raise UsageError("rename needs NEW=OLD[;OLD...]", found=shown(f"{column}={rename[column]}"))
            for extension in extensions:
                if becomes.setdefault(extension, column) != column:
                    raise UsageError(
                        f"extension {extension!r} is renamed twice", found=f"{becomes[extension]}, {column}"
                    )
        for name in dropped:
            if not name:
                raise UsageError("drop has an empty name")
            if _extension(name) in becomes:
                raise UsageError(f"extension {name!r} is both renamed and dropped")
        return cls(key_until, renamed, dropped)

    def check_declared(self, declared: Iterable[str]) -> None:
        """Raise UsageError if no extension can become one of the `declared` columns."""
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
        """Return the column of each extension that is renamed."""
        return {extension: column for column, extensions in self.rename.items() for extension in extensions}

    @property
    def dropped(self) -> frozenset[str]:
        """Return the file names and extensions that are dropped."""
        return frozenset((*self.drop, *map(_extension, self.drop)))

    def split(self, name: str) -> tuple[str, str]:
        """Return the key and the extension of a member's name; the extension may be empty."""
        folder, slash, base = name.rpartition("/")
        if self.key_until == FIRST_DOT:
            stem, _, extension = base.partition(".")
        else:
            stem, dot, extension = base.rpartition(".")
            stem, extension = (stem, extension) if dot else (base, "")
        return folder + slash + stem, extension.lower()

    def unused(self, members: Iterable[str]) -> list[str]:
        """Return a sentence for each dropped name and each renamed column that matches no member."""
        files = {name.rpartition("/")[2] for name in members if not is_hidden(name)}
        extensions = dict.fromkeys(self.split(name)[1] for name in sorted(files))
        known = f"there are {', '.join(filter(None, extensions))}"[:300]
        return [
            *(f"--drop {name}: no member has this extension or file name; {known}"
              for name in self.drop if name not in files and _extension(name) not in extensions),
            *(f"--rename {column}={';'.join(old)}: no member has such an extension; {known}"
              for column, old in self.rename.items() if not extensions.keys() & set(old)),
        ]  # fmt: skip


def is_hidden(name: str) -> bool:
    return name.rpartition("/")[2].startswith(".")


def _several(names: str | Sequence[str]) -> list[str]:
    return names.split(";") if isinstance(names, str) else list(names)


def _extension(name: str) -> str:
    return name.removeprefix(".").lower()
