"""Runs of ordinary members: the same members as the strict reader's, in any chunks and of any writer."""

from __future__ import annotations

import random
import tarfile
from collections.abc import Iterator

import pytest

from mdsx.errors import UnsupportedError
from mdsx.foreign.tars.members import TarMember, member_of, read_members, read_runs
from mdsx.foreign.tars.runs import HeaderRun
from tests.foreign.tars.sparse_tars import header, pax
from tests.foreign.tars.tars import chunked, sample_members, tar_bytes

Found = list[tuple[str, int, int, bytes, int]]
"""Name, where the first header is, where the bytes are, the bytes, where the name is."""


def strict(data: bytes) -> Found:
    members = read_members(iter([data]), file="x.tar")
    return [(m.name, m.offset, m.start, m.data, m.named) for m in members if isinstance(m, TarMember)]


def in_runs(data: bytes, size: int) -> tuple[Found, int]:
    """Return all members, and how many of them were in runs."""
    found, in_run = [], 0
    for item in read_runs(chunked(data, size), file="x.tar"):
        if isinstance(item, HeaderRun):
            in_run += len(item.names)
            members = [member_of(item, place) for place in range(len(item.names))]
            found += [(m.name, m.offset, m.start, m.data, m.named) for m in members]
        else:
            assert isinstance(item, TarMember), item
            found.append((item.name, item.offset, item.start, item.data, item.named))
    return found, in_run


def members(count: int) -> Iterator[tuple[str, bytes]]:
    draw = random.Random(count)
    for number in range(count):
        yield f"a/{number:04d}.txt", bytes(draw.randrange(2000))
        yield f"a/{number:04d}.cls", b"7"


@pytest.mark.parametrize("format", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
@pytest.mark.parametrize("size", [2**20, 40_000])
def test_runs_have_the_members_of_the_strict_reader(format: int, size: int) -> None:
    long_names = [("b/" + "x" * 200 + f"{number}.txt", b"long") for number in range(3)]
    if format == tarfile.USTAR_FORMAT:
        long_names = [("b" * 90 + "/" + "x" * 80 + f"{number}.txt", b"long") for number in range(3)]
    data = tar_bytes([*members(100), *long_names, *members(40)], format=format)
    found, in_run = in_runs(data, size)
    assert found == strict(data)
    assert in_run > (250 if size == 2**20 else 150)


def test_headers_of_pax_with_times_are_in_runs() -> None:
    data = tar_bytes(members(50), format=tarfile.PAX_FORMAT, mtime=1700000000.25)
    found, in_run = in_runs(data, 2**20)
    assert found == strict(data)
    assert in_run == 99  # the first member fills the first chunk


def test_records_that_matter_end_a_run() -> None:
    renamed = pax({"mtime": "1700000000.25", "path": "other.txt"})
    data = tar_bytes(sample_members(range(50)))[:-10240]
    data += renamed + header("y.txt", 0)
    data += tar_bytes(sample_members(range(50, 90)))
    found, _ = in_runs(data, 2**20)
    assert found == strict(data)
    assert "other.txt" in [name for name, *_ in found]


def test_headers_inside_a_members_bytes_are_no_members() -> None:
    inner = tar_bytes(sample_members(range(30)))
    data = tar_bytes([*sample_members(range(20)), ("inner.tar", inner), *sample_members(range(30, 50))])
    assert in_runs(data, 2**20)[0] == strict(data)


def test_damage_is_left_to_the_strict_reader() -> None:
    data = bytearray(tar_bytes(sample_members(range(100))))
    data[512 * 60 + 130] ^= 1
    expected = [
        str(item) for item in read_members(iter([bytes(data)]), file="x.tar") if not isinstance(item, TarMember)
    ]
    found = [str(item) for item in read_runs(iter([bytes(data)]), file="x.tar") if isinstance(item, Exception)]
    assert found == expected
    assert len(found) == 1


@pytest.mark.parametrize(("head", "name"), [(b"\x1f\x8b", "gzip"), (b"\x28\xb5\x2f\xfd", "zstd")])
def test_compressed_tars_have_no_runs(head: bytes, name: str) -> None:
    with pytest.raises(UnsupportedError, match=rf"x\.tar.*{name}.*mdsx convert tar"):
        next(read_runs(iter([head + bytes(100)]), file="x.tar"))
