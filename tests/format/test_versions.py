"""A version is shown whole, wherever a file has one."""

from __future__ import annotations

import pytest

from mdsx.errors import UnsupportedError
from mdsx.format import parse_index
from mdsx.format.length_file import LengthTrailer


@pytest.mark.parametrize(
    ("version", "shown"), [("1" + "0" * 40, "1" + "0" * 40), ("9" * 1000, "a number of 1000 digits")]
)
def test_a_later_version_is_shown_whole(version: str, shown: str) -> None:
    with pytest.raises(UnsupportedError, match=shown):
        parse_index(f'{{"format":"mdsx","version":{version},'.encode())
    with pytest.raises(UnsupportedError, match=shown):
        LengthTrailer.parse(f'{{"format":"mdsx-lengths","version":{version},'.encode(), file="a.u32")
