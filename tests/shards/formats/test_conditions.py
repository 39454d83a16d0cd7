"""Conditions on samples of each format: the samples that the values say, or an error before anything is read."""

from __future__ import annotations

import pytest

import mdsx
from mdsx.format import Index, ProjectsColumns, ReadsRows
from mdsx.shards import Shards
from mdsx.testing.subject import COUNT, FIRST, Subject, sample


def ids(data: mdsx.Dataset) -> list[int]:
    return [int(each["id"]) for each in data]


def test_lengths_choose_samples_of_each_format(url: str) -> None:
    found = mdsx.Dataset(url).filter("length(text) > 30 and length(vector) = 3")
    assert ids(found) == [number for number in range(FIRST, FIRST + COUNT) if len(sample(number)["text"]) > 30]


def test_numbers_choose_samples_or_an_error_says_why_not(subject: Subject, url: str) -> None:
    data, index = mdsx.Dataset(url), Shards(url).index
    condition = f"id >= {FIRST + 10} and id != {FIRST + 12}"
    if isinstance(index, Index | ProjectsColumns):
        assert ids(data.filter(condition)) == [FIRST + 10, FIRST + 11, *range(FIRST + 13, FIRST + COUNT)]
        assert ids(data.filter("maybe is null")) == [
            number for number in range(FIRST, FIRST + COUNT) if sample(number)["maybe"] is None
        ]
    elif not isinstance(index, ReadsRows):
        with pytest.raises(mdsx.UsageError, match=r"stores the values of all columns together.*input_columns=\['id'\]"):
            data.filter(condition)
