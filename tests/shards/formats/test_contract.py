"""Every format keeps the contract of `mdsx.testing`."""

from __future__ import annotations

import pytest

from mdsx.foreign.mds import MdsFormat, MdsIndex
from mdsx.foreign.parquet import ParquetFormat, ParquetIndex
from mdsx.format import StoredFormat, StoredIndex
from mdsx.testing import FormatContract, Subject
from tests.shards.formats.json_lines import LinesFormat, LinesIndex
from tests.shards.formats.more_lines import CompressedIndex, MoreFormat, PackedIndex, RangedIndex
from tests.shards.formats.subjects import SUBJECTS


class TestFormats(FormatContract):
    @pytest.fixture(params=SUBJECTS, ids=str)
    def subject(self, request: pytest.FixtureRequest) -> Subject:
        found: Subject = request.param
        return found


def test_the_formats_implement_the_protocols() -> None:
    """For mypy."""
    checked: list[StoredFormat] = [LinesFormat(), MoreFormat(), MdsFormat(), ParquetFormat()]
    kinds: list[type[StoredIndex]] = [LinesIndex, CompressedIndex, RangedIndex, PackedIndex, MdsIndex, ParquetIndex]
    assert checked
    assert kinds
