"""Rename and drop columns, for sources whose samples have named columns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mdsx.errors import UsageError, shown


@dataclass(frozen=True, slots=True)
class Naming:
    """Which columns of a source are kept, and under which names. `new`: old name -> new name. `only`: the old names of
    kept columns, or None for all."""

    new: Mapping[str, str]
    drop: frozenset[str]
    only: frozenset[str] | None = None

    @classmethod
    def parse(
        cls,
        rename: Mapping[str, str | Sequence[str]],
        drop: Sequence[str],
        declared: Iterable[str] = (),
        only: Iterable[str] | None = None,
    ) -> Naming:
        """Return the caller's options, checked. `declared`: the columns with a declared type. Raise UsageError."""
        new: dict[str, str] = {}
        for name, old in rename.items():
            olds = [old] if isinstance(old, str) else list(old)
            if len(olds) != 1:
                message = "a column can be renamed from only one other"
                raise UsageError(message, place=f"rename, column {name!r}", found=shown(old))
            former = olds[0]
            if new.setdefault(former, name) != name:
                raise UsageError(
                    "a column is renamed twice", place=f"column {former!r}", found=f"{new[former]}, {name}"
                )
        if both := new.keys() & set(drop):
            raise UsageError("a column is both renamed and dropped", found=shown(min(both)))
        for name in declared:
            if name not in rename and name in drop:
                raise UsageError(f"column {name!r} is declared, but dropped")
            if name not in rename and name in new:
                raise UsageError(
                    f"column {name!r} is declared, but renamed to {new[name]!r}", hint=f"declare {new[name]!r}"
                )
        return cls(new, frozenset(drop), None if only is None else frozenset(only))

    def keeps(self, name: str) -> bool:
        """Return whether a column is kept, by its old name."""
        return name not in self.drop and (self.only is None or name in self.only)

    def names(self, columns: Iterable[str], *, file: str) -> dict[str, str]:
        """Return old name -> new name of the `columns` that are kept, in their order.

        Raise UsageError if an option names a column that does not exist, or two columns get the same name.
        """
        columns = list(columns)
        for option, wanted in (("--rename", self.new), ("--drop", self.drop)):
            if missing := sorted(set(wanted) - set(columns)):
                message = f"{option} names a column that does not exist"
                raise UsageError(message, file=file, found=shown(missing[0]), expected=", ".join(columns)[:300])
        if missing := sorted((self.only or set()) - set(columns)):
            expected = ", ".join(columns)[:300]
            raise UsageError("there is no such column", file=file, found=shown(missing[0]), expected=expected)
        names = {name: self.new.get(name, name) for name in columns if self.keeps(name)}
        if len({*names.values()}) < len(names):
            twice = next(name for name in names.values() if [*names.values()].count(name) > 1)
            raise UsageError(
                "two columns get the same name", file=file, found=shown(twice), hint="use --rename or --drop"
            )
        return names

    @property
    def settings(self) -> dict[str, Any]:
        """Return the options as JSON, for `SampleSource.settings`."""
        return {"rename": dict(sorted(self.new.items())), "drop": sorted(self.drop)}
