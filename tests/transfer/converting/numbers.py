"""A source without files: numbers, in units."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from typing import Any, ClassVar

from mdsx.errors import MdsxError
from mdsx.transfer.converting.files import File
from mdsx.transfer.converting.source import Block, Row, SampleSource, Unit


class Numbers(SampleSource):
    """Samples {"x": i}, `size` a unit."""

    kind: ClassVar[str] = "numbers"

    def __init__(self, units: int, size: int) -> None:
        self.files = [File("/numbers", units * size, "", "")]
        self.units = [Unit(0, unit * size, unit * size + size, size) for unit in range(units)]
        self.settings: dict[str, Any] = {}

    def columns(self) -> tuple[dict[str, str], list[str]]:
        return {"x": "int64"}, []

    def read(
        self, unit: Unit, columns: Mapping[str, str], count: Callable[[int], object]
    ) -> Generator[Row | Block | MdsxError, None, None]:
        for number in range(unit.start, unit.stop):
            yield Row({"x": number}, number)

    def place_of(self, place: Any) -> str:
        return f"number {place}"
