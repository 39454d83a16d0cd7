"""The common parts of the indexes of Parquet files, tars and token files: each problem is an error with its facts."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import numpy as np
import pytest
import xxhash
from numpy.typing import NDArray

from mdsx.errors import CorruptError, FormatError, UnsupportedError
from mdsx.format import FileIndexParser, is_file_key, seal_file_index


class Content(msgspec.Struct):
    names: list[str]
    hashes: str


class Parser(FileIndexParser):
    """Parses an index of names and hashes."""

    FORMAT, VERSION, FILES, AGAIN = "mdsx-files", 3, "files", "index them again"

    def parse(self, data: bytes) -> tuple[list[str], NDArray[np.uint8]]:
        found = self._decode(data, msgspec.json.Decoder(Content))
        self._check_names(found.names, "names")
        return found.names, self._hashes(found.hashes, len(found.names), "hashes")


HASHES = "00112233445566778899aabbccddeeff" + "F" * 32


def index(**members: Any) -> bytes:
    return seal_file_index({"format": "mdsx-files", "version": 3, "names": ["a/b", "ü"], "hashes": HASHES, **members})


def resealed(data: bytes) -> bytes:
    return data + b',"checksum":"' + xxhash.xxh3_64_hexdigest(data).encode() + b'"}\n'


def test_an_index_is_a_line_of_json_that_ends_with_its_checksum() -> None:
    head = b'{"format":"mdsx-files","version":3,"names":["a/b","\xc3\xbc"],"hashes":"' + HASHES.encode() + b'"'
    assert index() == resealed(head)
    assert json.loads(index())["names"] == ["a/b", "ü"]


def test_hashes_become_a_writable_array() -> None:
    names, hashes = Parser("an index").parse(index())
    assert names == ["a/b", "ü"]
    assert (str(hashes.dtype), hashes.tobytes().hex()) == ("uint8", HASHES.lower())
    assert (hashes.shape, hashes.flags.writeable) == ((2, 16), True)
    assert Parser(None).parse(index(names=[], hashes=""))[1].shape == (0, 16)


@pytest.mark.parametrize(
    ("data", "message", "place", "found", "expected"),
    [
        (b"", "this is not an index of files", "start", None, None),
        (b" " + index(), "this is not an index of files", "start", None, None),
        (index(format="mdsx-tars"), "this is not an index of files", "start", None, None),
        (index(version=-1), "this is not an index of files", "start", None, None),
        (index()[:-1], "the file ends before its checksum", "end", None, None),
        (
            index().replace(b"a/b", b"a/c"),
            "the index is damaged",
            "checksum",
            xxhash.xxh3_64_hexdigest(index().replace(b"a/b", b"a/c")[:-32]),
            xxhash.xxh3_64_hexdigest(index()[:-32]),
        ),
        (index(names=["a", "a"]), "the index contradicts itself", "names", "a name twice", None),
        (
            index(names=["a", "b" * 4097]),
            "not the name of a file below the index's folder",
            "names",
            repr("b" * 200),
            None,
        ),
        (index(hashes=HASHES[:-2]), "expected 32 hexadecimal digits for each", "hashes", None, None),
        (index(hashes=HASHES[:-1]), "expected 32 hexadecimal digits for each", "hashes", None, None),
        (index(hashes=HASHES[:-1] + "g"), "expected 32 hexadecimal digits for each", "hashes", None, None),
        (index(hashes=f"{HASHES[:32]} {HASHES[32:]}"), "expected 32 hexadecimal digits for each", "hashes", None, None),
    ],
)
def test_a_problem_is_an_error_with_its_facts(
    data: bytes, message: str, place: str, found: str | None, expected: str | None
) -> None:
    with pytest.raises(CorruptError) as caught:
        Parser("an index").parse(data)
    error = caught.value
    assert (error.file, error.message, error.place) == ("an index", message, place)
    assert (error.found, error.expected, error.hint) == (found, expected, "index them again")


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (index(names=3), r"Expected `array`, got `int` - at `\$.names`"),
        (resealed(index()[:-32].replace(b"\xc3\xbc", b"\xff")), "utf-?8"),
        (resealed(index()[:-32] + b',"deep":' + b"[" * 10**5), "recursion"),
    ],
)
def test_json_of_another_form_is_corrupt(data: bytes, says: str) -> None:
    with pytest.raises(CorruptError, match=f"(?i)not an index of files: .*{says}") as caught:
        Parser("an index").parse(data)
    assert (caught.value.file, caught.value.place, caught.value.hint) == ("an index", "JSON", "index them again")


def test_another_version_is_unsupported() -> None:
    with pytest.raises(UnsupportedError, match="the index has another version") as caught:
        Parser("an index").parse(index(version=12)[:-1])  # whatever follows
    error: FormatError = caught.value
    assert (error.file, error.found, error.expected) == ("an index", "12", 3)
    assert error.hint == "upgrade mdsx, or index them again"


def test_a_key_is_a_path_below_the_folder() -> None:
    for name in ("a", "a/b.c/d", "..a/b..", "é😀", "a b", "a:b?c#d", "x" * 4096):
        assert is_file_key(name), name
    for name in ("", "/a", "a/", "a//b", ".", "a/..", "../a", "a/./b", "a\\b", "a\0", "a\n", "\x7f", "\x9f", "\ud800"):
        assert not is_file_key(name), name
    assert not is_file_key("x" * 4097)
