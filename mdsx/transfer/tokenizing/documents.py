"""The documents of a source, many at a time: their texts, kept columns, and places."""

from __future__ import annotations

import operator
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from mdsx.errors import MdsxError, SampleError
from mdsx.format import describe
from mdsx.transfer.converting import Block, Counted, Item, Lost, Row

_MOST = 4096  # documents


@dataclass(frozen=True, slots=True)
class Documents:
    """Some documents: their texts, the values of each kept column, and `place(i)`, for the source."""

    texts: Sequence[str]
    kept: Mapping[str, Any]
    place: Callable[[int], Any]

    def __len__(self) -> int:
        return len(self.texts)

    def part(self, start: int, stop: int) -> Documents:
        """Return documents `start` to `stop`."""
        kept = {name: values[start:stop] for name, values in self.kept.items()}
        return Documents(self.texts[start:stop], kept, partial(_shifted, self.place, start))


@dataclass(frozen=True, slots=True)
class BadDocument:
    """A sample without a text, and the reason."""

    place: Any
    error: SampleError


class DocumentReader:
    """Makes documents from the items of a source, with the texts of column `text` and the columns `keep`.

    `most`: about how many characters to return at a time.
    """

    def __init__(self, text: str, keep: Sequence[str], most: int) -> None:
        self._text, self._keep, self._most = text, keep, most
        self._rows: list[tuple[str, Row]] = []
        self._size = 0

    def read(self, items: Iterable[Item]) -> Generator[Documents | BadDocument | Lost | MdsxError, None, None]:
        """Yield the documents of `items` in order, and their errors."""
        for item in items:
            if isinstance(item, Row):
                yield from self._add(item)
                continue
            yield from self._flush()
            if isinstance(item, Block):
                yield from self._block(item)
            elif not isinstance(item, Counted):
                yield item
        yield from self._flush()

    def _add(self, row: Row) -> Iterator[Documents | BadDocument]:
        text = _text_of(row.values[self._text])
        if isinstance(text, SampleError):
            yield from self._flush()
            yield BadDocument(row.place, text)
            return
        self._rows.append((text, row))
        self._size += len(text)
        if self._size >= self._most or len(self._rows) == _MOST:
            yield from self._flush()

    def _flush(self) -> Iterator[Documents]:
        if self._rows:
            rows, self._rows, self._size = self._rows, [], 0
            kept = {name: [row.values[name] for _, row in rows] for name in self._keep}
            yield Documents([text for text, _ in rows], kept, partial(operator.getitem, [row.place for _, row in rows]))

    def _block(self, block: Block) -> Iterator[Documents | BadDocument]:
        values = _column(block.columns, self._text)
        kept = {name: _column(block.columns, name) for name in self._keep}
        texts: list[Any] = [_text_of(value) for value in (values if isinstance(values, list) else values.tolist())]
        whole = Documents(texts, kept, block.place)
        start = size = 0
        for number, text in enumerate(texts):
            bad = isinstance(text, SampleError)
            if (bad or size >= self._most or number - start == _MOST) and start < number:
                yield whole.part(start, number)
                start, size = number, 0
            if isinstance(text, SampleError):
                yield BadDocument(block.place(number), text)
                start = number + 1
            else:
                size += len(text)
        if start < len(texts):
            yield whole.part(start, len(texts))


def _column(columns: Any, name: str) -> Any:
    """Return a column of a mapping, or of Arrow data."""
    return columns[name] if isinstance(columns, Mapping) else columns.column(name)


def _text_of(value: Any) -> str | SampleError:
    """Return the value of a column as a text, or the error."""
    if isinstance(value, str):
        return value
    if value is None:
        return SampleError("the document has no text: it is null or missing")
    if isinstance(value, bytes | bytearray | memoryview):
        try:
            return bytes(value).decode()
        except UnicodeDecodeError as error:
            return SampleError("the text is not UTF-8", found=f"byte {value[error.start]:#04x} at byte {error.start}")
    return SampleError("the document is not text", found=describe(value), expected="a string")


def _shifted(place: Callable[[int], Any], by: int, number: int) -> Any:
    return place(by + number)
