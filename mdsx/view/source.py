"""One viewed dataset: answers to the page's questions, as strict JSON.

Samples are read by number, by range where the format allows it. The last few are kept, because the page requests a
sample's images after the sample.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mdsx.checks.damage import damages_of
from mdsx.datasets import Dataset, excerpt_of
from mdsx.errors import MdsxError, MissingError, TransportError, UsageError
from mdsx.format import BASES, ReadsExtents, ReadsParts, ReadsSamples, StoredIndex, object_sizes
from mdsx.shards import OURS, ColumnChoice, Decode, Shards, snapshots, stored_columns
from mdsx.storage import StorageOptions, sealed
from mdsx.view.search import Match, scan
from mdsx.view.tokens import Tokenizer
from mdsx.view.trees import shortened, tree
from mdsx.view.values import TEXT, base_of, brief, described, has_picture, media_of

_KEPT = 40  # samples
_LARGE = 4_000_000  # average bytes of a sample, above which samples are neither listed with their neighbours nor kept
_AT_ONCE = 32_000_000  # bytes that a search reads together, about
_BARS = 400  # of the chart of shards
_PREVIEW = 2  # columns in a list of samples
_PROBLEMS = 50  # shown for a damaged shard
_NAME = 300  # characters of a shard's name


@dataclass(frozen=True)
class Opening:
    """How a dataset is opened, besides its URL."""

    columns: ColumnChoice | None = None
    storage_options: StorageOptions | None = None
    index: str | None = None
    snapshot: str | None = None
    tokenizer: Tokenizer | None = None
    decode: Decode | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "storage_options", sealed(self.storage_options))


class ViewedDataset:
    """The dataset at `url`. Threads may share it."""

    def __init__(self, url: str, opening: Opening) -> None:
        self._whole = Dataset(
            url,
            decode=opening.decode,
            storage_options=opening.storage_options,
            index=opening.index,
            snapshot=opening.snapshot,
        )
        shown = self._whole if opening.columns is None else self._whole.select_columns(opening.columns)
        self._types = dict(shown.columns)
        self.dataset = shown.select_columns(stored_columns(excerpt_of(shown).schema))
        self._tokenizer = opening.tokenizer
        counts = self._shards.index.counts
        self._firsts = np.concatenate((np.zeros(1, np.int64), np.cumsum(counts)))
        self._recent: OrderedDict[int, dict[str, Any]] = OrderedDict()
        self._lock = threading.Lock()

    @property
    def _shards(self) -> Shards:
        return excerpt_of(self._whole).shards

    def overview(self) -> dict[str, Any]:
        """Return what `mdsx info` shows, without the selections."""
        index = self._shards.index
        in_parts = isinstance(index, ReadsParts)
        return {
            "url": self.dataset.url,
            "format": index.format,
            "checks": index.checks,
            "samples": index.samples,
            "shards": len(index.counts),
            "files": len(object_sizes(index, range(len(index.counts))))
            if in_parts or isinstance(index, ReadsExtents)
            else None,
            "size": sum(index.sizes.tolist()),
            "raw_size": sum(index.raw_sizes.tolist()),
            "exact": not in_parts,
            "compression": index.compression,
            "fingerprint": index.fingerprint,
            "reads": _how_read(index) if len(index.counts) else None,
            "columns": [{"name": name, "type": kind} for name, kind in self._types.items()],
            "texts": self.text_columns,
            "metadata": tree(index.metadata),
            "snapshots": snapshots(self._shards.beside) if index.format == OURS.name else [],
        }

    @property
    def text_columns(self) -> list[str]:
        """Return the names of searchable columns, text columns first."""
        bases = {name: BASES.get(base_of(kind)) for name, kind in self.dataset.columns.items()}
        wanted = [base for base in BASES.values() if base.kind in ("text", "document")]
        return [name for each in wanted for name, base in bases.items() if base is each]

    # --- samples

    def samples(self, start: int, count: int) -> dict[str, Any]:
        """Return a short description of the samples [start, start + count), of as many as are kept."""
        numbers = range(max(start, 0), min(start + min(count, _KEPT), len(self.dataset)))
        found: dict[str, Any] = {"start": numbers.start, "total": len(self.dataset)}
        if self._sample_bytes > _LARGE:
            rows: list[dict[str, Any]] = [{"number": number, "picture": None, "lines": []} for number in numbers]
            return {**found, "large": self._sample_bytes, "samples": rows}
        with self._lock:
            missing = [number for number in numbers if number not in self._recent]
        if missing:
            self._read(missing)
        return {**found, "large": None, "samples": [self._short(each) for each in numbers]}

    @property
    def _sample_bytes(self) -> int:
        """Return the average uncompressed bytes of a sample."""
        index = self._shards.index
        return int(index.raw_sizes.sum()) // max(index.samples, 1)

    def _short(self, number: int) -> dict[str, Any]:
        try:
            sample = self.sample_values(number)
        except MdsxError as error:
            return {"number": number, "error": shortened(str(error), 300)}
        picture = next((name for name, value in sample.items() if has_picture(value)), None)
        shown = sorted((name for name in sample if name != picture), key=lambda name: _rank(sample[name]))
        lines = [[name, brief(sample[name])] for name in shown]
        return {"number": number, "picture": picture, "lines": lines[:_PREVIEW]}

    def sample(self, number: int) -> dict[str, Any]:
        """Return everything about a sample, with long values cut."""
        values, kinds = self.sample_values(number), self._types
        shard, within = self.place(number)
        return {
            "number": number,
            "shard": shard,
            "within": within,
            "file": shortened(self._shards.index.name(shard), _NAME),
            "columns": [
                {"name": name, "type": kinds[name], "value": described(value, kinds[name], self._tokenizer)}
                for name, value in values.items()
            ],
        }

    def place(self, number: int) -> tuple[int, int]:
        """Return the shard of a sample, and its number in it."""
        shard = int(np.searchsorted(self._firsts, number, side="right")) - 1
        return shard, number - int(self._firsts[shard])

    def sample_values(self, number: int) -> dict[str, Any]:
        """Return a sample as `mdsx.Dataset` does. Raise UsageError if it does not exist."""
        if not 0 <= number < len(self.dataset):
            samples = f"{len(self.dataset):,} samples"
            raise UsageError(f"there is no sample {number:,}: the dataset has {samples}, numbered from 0")
        with self._lock:
            found = self._recent.get(number)
            if found is not None:
                self._recent.move_to_end(number)
        if found is None:
            found = self.dataset[number]
            self._keep(number, found)
        return found

    def _read(self, numbers: Sequence[int]) -> None:
        """Read samples together, to keep them. Errors are left to the request for the single sample."""
        try:
            samples = self.dataset[list(numbers)]
        except MdsxError:
            return
        for number, sample in zip(numbers, samples, strict=True):
            self._keep(number, sample)

    def _keep(self, number: int, sample: dict[str, Any]) -> None:
        with self._lock:
            self._recent[number] = sample
            kept = 1 if self._sample_bytes > _LARGE else _KEPT
            while len(self._recent) > kept:
                self._recent.popitem(last=False)

    def picture(self, number: int, column: str, item: int | None) -> tuple[str, bytes]:
        """Return the media type and bytes of an image, sound or video. Raise UsageError for other values."""
        found = media_of(self._value(number, column), self._types[column], item)
        if found is None:
            raise UsageError(f"column {column!r} of sample {number:,} is not an image, sound or video")
        return found

    def text(self, number: int, column: str, start: int) -> dict[str, Any]:
        """Return the next piece of a text, from character `start` on."""
        value = self._value(number, column)
        if not isinstance(value, str):
            raise UsageError(f"column {column!r} of sample {number:,} is not text")
        start = max(start, 0)
        return {"text": value[start : start + TEXT], "start": start, "length": len(value)}

    def _value(self, number: int, column: str) -> Any:
        values = self.sample_values(number)
        if column not in values:
            raise UsageError(f"there is no column {column!r}")
        return values[column]

    def search(self, column: str, text: str, span: range, seconds: float) -> dict[str, Any]:
        """Search for `text`, ignoring case, in a column of the samples `span`, for at most `seconds`.

        In the result, `next` is the first sample that was not searched.
        """
        if column not in self.text_columns:
            raise UsageError(f"column {column!r} cannot be searched for text")
        if not text:
            raise UsageError("give a text to search for")
        dataset, most = self.dataset.select_columns([column]), _AT_ONCE // max(self._sample_bytes, 1)
        found = scan(dataset, column, text, range(span.start, min(span.stop, len(dataset))), seconds, most)
        return {"matches": list(map(Match._asdict, found.matches)), "next": found.next, "total": len(dataset)}

    # --- shards

    def shards(self, start: int, count: int) -> dict[str, Any]:
        """Return a table of the shards [start, start + count)."""
        index = self._shards.index
        most = int(index.raw_sizes.max(initial=0))
        numbers = range(max(start, 0), min(start + count, len(index.counts)))
        return {
            "total": len(index.counts),
            "most": most,
            "exact": not isinstance(index, ReadsParts),
            "compression": index.compression,
            "shards": [
                {
                    "number": shard,
                    "name": shortened(index.name(shard), _NAME),
                    "first": int(self._firsts[shard]),
                    "samples": int(index.counts[shard]),
                    "size": int(index.sizes[shard]),
                    "raw_size": int(index.raw_sizes[shard]),
                }
                for shard in numbers
            ],
        }

    def sizes(self) -> dict[str, Any]:
        """Return bars for the raw sizes of all shards: one for each shard, or the largest in equal stretches."""
        sizes = self._shards.index.raw_sizes
        edges = np.linspace(0, len(sizes), min(len(sizes), _BARS) + 1).astype(np.int64)
        largest = np.maximum.reduceat(sizes, edges[:-1]) if len(sizes) else sizes
        return {"x": edges[:-1].tolist(), "y": largest.tolist()}

    def check(self, shard: int) -> dict[str, Any]:
        """Read a whole shard and check every byte. Return its state and what is wrong.

        It is "undamaged", "damaged", or "unread" if storage failed.
        """
        shards = self._shards
        if not 0 <= shard < len(shards.index.counts):
            raise UsageError(f"there is no shard {shard:,}")
        found: Sequence[MdsxError]
        try:
            found = damages_of(shards.storage, shards.beside, shards.index, shard, first=int(self._firsts[shard]))
            state = "damaged" if found else "undamaged"
        except TransportError as error:
            found, state = [error], "unread"
        problems = [{"kind": type(error).__name__, "message": shortened(str(error), 1000)} for error in found]
        missing = any(isinstance(error, MissingError) for error in found)
        return {"state": state, "missing": missing, "count": len(problems), "problems": problems[:_PROBLEMS]}


def _rank(value: Any) -> int:
    """Return a sort key for short descriptions: texts, then numbers, then the rest."""
    return 0 if isinstance(value, str) else 1 if isinstance(value, bool | int | float | np.generic) else 2


def _how_read(index: StoredIndex) -> str:
    """Return the smallest part of a shard that can be read from storage."""
    if isinstance(index, ReadsParts):
        return "the whole shard, which is a part of an object"
    if isinstance(index, ReadsSamples) and index.has_ranges(0):
        return "single samples, by byte range"
    return "the whole shard, which is an object"
