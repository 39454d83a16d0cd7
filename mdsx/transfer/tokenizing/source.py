"""Documents as tokens: a source that wraps another source, which has the texts.

Rules:
- A row of a fixed length never has tokens of two units. A unit is a run of the inner source's units, large enough that
  few tokens remain at its end. These are left out, and counted.
- A document that cannot be tokenized is an error that names its place. The whole document is skipped.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial
from importlib.util import find_spec
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mdsx.errors import MdsxError, SampleError, restated
from mdsx.foreign.arrow import pa
from mdsx.transfer.converting import Block, Counted, Item, Lost, SampleSource, Unit
from mdsx.transfer.tokenizing.documents import BadDocument, DocumentReader, Documents
from mdsx.transfer.tokenizing.kinds import Texts
from mdsx.transfer.tokenizing.rows import RowCutter
from mdsx.transfer.tokenizing.vocabulary import Encoder

TOKENS = "tokens"
AMOUNTS = ("documents", "tokens", "left out")
_SMALLEST = 2**20  # bytes of a unit, so that a million small files do not become a million units
_SMALLEST_OF_ROWS, _ROWS = 2**23, 2048  # bytes of a unit of rows: at least this many, and this many row lengths
_SKIP = "--on-error skip leaves out such documents"


class _Place(NamedTuple):
    """A document of the inner source: its unit there, and its place."""

    unit: Unit
    place: Any


class TokenSource(SampleSource):
    """The documents of `texts` as tokens: one row for each, or rows of `length` tokens.

    `warnings`: about the columns. `keep`: the columns that are stored with the tokens. `batch`: about how many
    characters to tokenize at once.
    """

    kind: ClassVar[str] = "tokenize"
    amounts = AMOUNTS

    def __init__(
        self,
        texts: Texts,
        warnings: Sequence[str],
        encoder: Encoder,
        *,
        keep: Sequence[str],
        length: int | None,
        batch: int,
    ) -> None:
        inner = self._inner = texts.source
        self._read_columns, self._warnings, self._encoder = dict(texts.columns), list(warnings), encoder
        self._text, self._keep, self._length, self._batch = texts.text, tuple(keep), length, batch
        self.files = inner.files
        self.units = list(_joined(inner.units, _SMALLEST if length is None else max(_SMALLEST_OF_ROWS, _ROWS * length)))
        self.lengths = (TOKENS,) if length is None else ()
        marks = {"begin_of_text": encoder.begin, "end_of_text": encoder.end}
        self._described = {"tokenizer": encoder.vocabulary.digest, "text": texts.text, **marks}
        of_inner = {"kind": inner.kind, **inner.settings}
        self.settings = {**self._described, "keep": list(keep), "rows": length, "dtype": encoder.dtype, **of_inner}

    def columns(self) -> tuple[dict[str, str], list[str]]:
        kept = {name: self._read_columns[name] for name in self._keep}
        return {TOKENS: f"{self._encoder.dtype}[{self._length or '*'}]", **kept}, self._warnings

    def metadata(self, columns: Mapping[str, str]) -> dict[str, Any]:
        return {"tokenized": {**self._described, "vocabulary": self._encoder.size}}

    def read(
        self, unit: Unit, columns: Mapping[str, str], count: Callable[[int], object]
    ) -> Generator[Item, None, None]:
        cutter = None if self._length is None else RowCutter(self._length)
        for inner in self._inner.units[unit.start : unit.stop]:
            reader = DocumentReader(self._text, self._keep, self._batch)
            with closing(self._inner.read(inner, self._read_columns, count)) as items:
                for found in reader.read(items):
                    if isinstance(found, Documents):
                        yield from self._tokens(inner, found, cutter)
                    elif isinstance(found, BadDocument):
                        yield self._located(inner, found.place, found.error)
                    else:
                        yield self._of_document(found)
        if cutter is not None:
            yield Counted((0, 0, cutter.left))

    def _tokens(self, unit: Unit, documents: Documents, cutter: RowCutter | None) -> Iterator[Item]:
        """Yield the tokens of documents; one by one if the tokenizer refuses one of them."""
        try:
            tokens, lengths = self._encoder.encode(documents.texts)
        except Exception:
            if len(documents) > 1:
                middle = len(documents) // 2
                yield from self._tokens(unit, documents.part(0, middle), cutter)
                yield from self._tokens(unit, documents.part(middle, len(documents)), cutter)
                return
            if (error := self._encoder.failure(documents.texts[0])) is None:
                raise
            yield self._located(unit, documents.place(0), error)
            return
        place = partial(_place, unit, documents.place)
        if cutter is None:
            yield Block({TOKENS: _rows(tokens, lengths), **documents.kept}, len(documents), place)
        elif (cut := cutter.cut(tokens)) is not None:
            yield Block({TOKENS: cut}, len(cut), partial(_place, unit, lambda number: documents.place(0)))
        yield Counted((len(documents), len(tokens), 0))

    # --- errors

    def place_of(self, place: _Place) -> str:
        return self._inner.place_of(place.place)

    def refused(self, unit: Unit, place: _Place, error: SampleError) -> SampleError:
        return self._inner.refused(place.unit, place.place, error)

    def _located(self, unit: Unit, place: Any, error: SampleError) -> SampleError:
        """Return the error of a document with its file and place."""
        where = ", ".join(filter(None, (self._inner.place_of(place), f"column {self._text!r}")))
        return restated(error, file=self.files[unit.file].url, place=where, hint=_SKIP)

    def _of_document(self, error: Lost | MdsxError) -> Lost | MdsxError:
        """Return an error of the inner source. For an error of the text, remove the hint to declare another type."""
        if isinstance(error, SampleError) and f"column {self._text!r}" in f"{error.place}: {error.message}":
            return restated(error, hint=_SKIP)
        return error


def _rows(tokens: NDArray[Any], lengths: NDArray[np.int64]) -> Any:
    """Return a column of rows: as Arrow data, which is faster for short rows, if pyarrow is installed."""
    stops = lengths.cumsum()
    if find_spec("pyarrow") is not None and len(tokens) < 2**31:
        return pa.ListArray.from_arrays(pa.array(np.append(0, stops).astype(np.int32)), pa.array(tokens))
    return [tokens[start:stop] for start, stop in zip((stops - lengths).tolist(), stops.tolist(), strict=True)]


def _place(unit: Unit, place: Callable[[int], Any], number: int) -> _Place:
    return _Place(unit, place(number))


def _joined(units: Sequence[Unit], size: int) -> Iterator[Unit]:
    """Join units to runs of at least `size` bytes, except the last one. A run goes from one unit's number to
    another's."""
    start = taken = 0
    for number, unit in enumerate(units):
        taken += unit.size
        if taken >= size or number + 1 == len(units):
            yield Unit(units[start].file, start, number + 1, taken)
            start, taken = number + 1, 0
