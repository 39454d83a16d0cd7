"""The datasets that one server shows, and the run over all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mdsx.base.cached import cached_property
from mdsx.datasets import Component, Dataset, Mixture
from mdsx.errors import UsageError
from mdsx.view.ordering import Question, answer
from mdsx.view.source import Opening, ViewedDataset


class Library:
    """The datasets at `urls`. Several datasets also form one run, a mixture."""

    def __init__(self, urls: Sequence[str], opening: Opening) -> None:
        if len(urls) > 1 and (opening.index is not None or opening.snapshot is not None):
            raise UsageError("an index or a snapshot belongs to one dataset", found=f"{len(urls)} URLs")
        self.sources = [ViewedDataset(url, opening) for url in urls]
        self.tokenizer = opening.tokenizer

    def source(self, number: int) -> ViewedDataset:
        """Return a dataset. Raise UsageError if there is none with this number."""
        if not 0 <= number < len(self.sources):
            raise UsageError(f"there is no dataset {number}")
        return self.sources[number]

    @cached_property
    def _overviews(self) -> list[dict[str, Any]]:
        return [source.overview() for source in self.sources]

    def overview(self) -> dict[str, Any]:
        """Return what the page shows of the datasets at first."""
        tokenizer = None if self.tokenizer is None else self.tokenizer.name
        return {"datasets": self._overviews, "tokenizer": tokenizer}

    def order(self, form: Mapping[str, str]) -> dict[str, Any]:
        """Return the samples of a batch. `form` has the fields of `Question`, and the `proportions` of a mixture."""
        return answer(self._dataset(form.get("proportions", "")), Question.parse(form))

    def _dataset(self, proportions: str) -> Dataset | Mixture:
        datasets = [source.dataset for source in self.sources]
        parts = [part for part in proportions.replace(",", " ").split() if part]
        if len(datasets) == 1:
            return datasets[0]
        if not parts:
            return Mixture(datasets)
        if len(parts) != len(datasets):
            raise UsageError("give a proportion to each dataset or to none", found=proportions[:100])
        try:
            numbers = [float(part) for part in parts]
        except ValueError:
            raise UsageError("a proportion must be a number", found=proportions[:100]) from None
        return Mixture([Component(dataset, share) for dataset, share in zip(datasets, numbers, strict=True)])
