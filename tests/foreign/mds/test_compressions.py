"""Compressed shards: damaged, cut and longer streams are errors, and no more is made than the index says."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import mdsx
from mdsx.errors import CorruptError, UsageError
from mdsx.foreign.mds import MdsFormat, MdsIndex
from mdsx.foreign.mds.compressions import NAMES
from tests.foreign.mds.plain import compress, entry, index_bytes, shard_bytes, zipped
from tests.foreign.mds.test_golden import GOLDEN

COLUMNS = {"text": "str"}
RAW = shard_bytes(COLUMNS, [{"text": "word " * k} for k in range(300)])
STORED = {name: compress(name, RAW) for name in NAMES}


def index_of(name: str, size: int, raw_size: int = len(RAW)) -> MdsIndex:
    shard = zipped(entry(COLUMNS, "shard.mds", RAW, 300, ["md5"]), name, bytes(size))
    shard["raw_data"]["bytes"] = raw_size
    return MdsFormat().parse_index(index_bytes([shard]), file="index.json")


def received(index: MdsIndex, stored: bytes, step: int) -> tuple[bytes, int]:
    """Return the raw bytes, and the largest piece."""
    receiver = index.receive(0, file="shard.mds")
    pieces = [bytes(piece) for at in range(0, len(stored), step) for piece in receiver.feed(stored[at : at + step])]
    receiver.finish()
    return b"".join(pieces), max(map(len, pieces))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("step", [1, 1000, 2**20])
def test_any_chunks_give_the_raw_bytes(name: str, step: int) -> None:
    raw, _ = received(index_of(name, len(STORED[name])), STORED[name], step)
    assert raw[: len(RAW)] == RAW


@pytest.mark.parametrize("name", ["bz2", "gz", "zstd"])
@pytest.mark.parametrize("step", [1, 700, 2**20])
def test_several_streams_in_one_file_are_read(name: str, step: int) -> None:
    half = len(RAW) // 2
    stored = b"".join(compress(name, part) for part in (RAW[:half], b"", RAW[half:]))
    raw, _ = received(index_of(name, len(stored)), stored, step)
    assert raw[: len(RAW)] == RAW
    with pytest.raises(CorruptError, match=r"shard\.mds: (the compressed bytes|it decompresses to more)"):
        received(index_of(name, len(stored) + 1), stored + b"\0", step)


@pytest.mark.parametrize("name", NAMES)
def test_damaged_streams_are_errors(name: str) -> None:
    @given(st.integers(0, len(STORED[name]) - 1), st.integers(1, 255), st.sampled_from(["flip", "cut", "more"]))
    def run(at: int, flipped: int, how: str) -> None:
        stored = STORED[name]
        changed = {
            "flip": stored[:at] + bytes([stored[at] ^ flipped]) + stored[at + 1 :],
            "cut": stored[:at],
            "more": stored + stored[:at] + b"\xff",
        }[how]
        if name == "br" and how == "more":
            return  # its library ignores what follows the end of a stream
        try:
            raw, _ = received(index_of(name, len(changed)), changed, 500)
        except CorruptError as error:
            assert str(error).startswith("shard.mds: ")  # noqa: PT017
        else:  # a bit that has no meaning, such as a level in gzip's header
            assert raw[: len(RAW)] == RAW

    run()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("more", [-1, 1, 10_000])
def test_another_raw_size_is_an_error(name: str, more: int) -> None:
    index = index_of(name, len(STORED[name]), len(RAW) + more)
    with pytest.raises(CorruptError, match=r"shard\.mds: "):
        received(index, STORED[name], 1000)


@pytest.mark.parametrize("name", ["bz2", "gz"])
def test_pieces_have_a_bounded_size(name: str) -> None:
    stored = compress(name, bytes(2**23))
    receiver = index_of(name, len(stored), 2**23).receive(0, file="shard.mds")
    assert max(len(memoryview(piece)) for piece in receiver.feed(stored)) <= 2**20


@pytest.mark.parametrize(("dataset", "package"), [("compression-br", "cramjam"), ("encoding-pil", "PIL.Image")])
def test_a_missing_package_is_named_with_its_extra(
    dataset: str, package: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    opened = mdsx.Dataset(GOLDEN / dataset, cache=tmp_path / "cache")
    with pytest.raises(UsageError, match=r"need the package .*pip install 'mdsx\[(mds|images)\]'"):
        opened[0]
