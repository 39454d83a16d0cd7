"""The source of WebDataset tars: a unit is a tar, plain, gzip or zstd."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from contextlib import closing
from dataclasses import replace
from typing import Any, ClassVar, Literal

from mdsx.base.arguments import check_choice
from mdsx.errors import MdsxError, SampleError, UsageError, shown
from mdsx.foreign.tars import (
    FIRST_DOT,
    Names,
    SampleReader,
    TarSample,
    check_declared,
    find_columns,
    group_samples,
    read_members,
)
from mdsx.transfer.converting.files import FileKind, find_files, read_chunks
from mdsx.transfer.converting.source import Block, Request, Row, SampleSource, Unit

_TARS = FileKind("tar", "tar")


def open_source(request: Request, *, key_until: str = FIRST_DOT, nan: Literal["error", "null"] = "error") -> TarFiles:
    """Return the source of tars. Raise UsageError, or MissingError if a tar is missing."""
    check_choice("nan", nan, "error", "null")
    names, declared = Names.parse(key_until, request.rename, request.drop), check_declared(request.declared)
    names.check_declared(declared)
    return TarFiles(request, names, declared, nan)


class TarFiles(SampleSource):
    """Tars whose members' `names` become keys and columns."""

    kind: ClassVar[str] = "tar"

    def __init__(self, request: Request, names: Names, declared: Mapping[str, str], nan: str) -> None:
        self.files = find_files(request.sources, _TARS, request.options)
        self.units = [Unit(number, 0, file.size, file.size) for number, file in enumerate(self.files)]
        self.settings = {"nan": nan, "key_until": names.key_until, "rename": names.rename, "drop": names.drop}
        self._names = names if request.only is None else replace(names, others=True)
        self._declared, self._nan = declared, nan
        self._skip, self._options = request.skip, request.options
        self._only = None if request.only is None else frozenset(request.only)

    def columns(self) -> tuple[dict[str, str], list[str]]:
        urls = [file.url for file in self.files]
        columns, warnings = find_columns(
            urls, lambda tar: read_chunks(self.files[tar], self._options), self._declared, self._names, skip=self._skip
        )
        if self._only is None:
            return columns, warnings
        if missing := sorted(self._only - columns.keys()):
            found, expected = shown(missing[0]), ", ".join(columns)[:300]
            raise UsageError("there is no such column", file=urls[0], found=found, expected=expected)
        return {name: kind for name, kind in columns.items() if name in self._only}, []

    def read(
        self, unit: Unit, columns: Mapping[str, str], count: Callable[[int], object]
    ) -> Generator[Row | Block | MdsxError, None, None]:
        file = self.files[unit.file]
        nan, others = self._nan == "null", self._only is not None
        reader = SampleReader(columns, file=file.url, stored=file.size, nan_null=nan, others=others)
        with closing(read_chunks(file, self._options, count=count)) as chunks:
            for item in group_samples(read_members(chunks, file=file.url), file=file.url, names=self._names):
                if not isinstance(item, TarSample):
                    yield item
                    continue
                try:
                    values = reader.read(item)
                except SampleError as error:
                    yield error
                else:
                    yield Row(values, (reader, item))

    def place_of(self, place: Any) -> str:
        _, sample = place
        return str(next(iter(sample.members.values())).place)

    def refused(self, unit: Unit, place: Any, error: SampleError) -> SampleError:
        reader, sample = place
        refused: SampleError = reader.misfit(sample, error)
        return refused
