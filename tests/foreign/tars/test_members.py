"""The tar reader reads tars of other programs, and never mistakes damage for the end."""

from __future__ import annotations

import gzip
import io
import os
import subprocess
import tarfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mdsx import CorruptError
from mdsx.foreign.tars.members import TarMember, read_members
from tests.foreign.tars.sparse_tars import header, old_gnu, padded, pax, pax_lines, pax_sparse
from tests.foreign.tars.tars import chunked, sample_members, tar_bytes

CLOSED = tar_bytes(sample_members(range(5)), format=tarfile.USTAR_FORMAT)
END = 5 * 2 * 1024  # every member is a header and one block


def read(data: bytes, size: int = 1000) -> list[TarMember | CorruptError]:
    return list(read_members(chunked(data, size), file="x.tar"))


def errors(data: bytes) -> list[str]:
    return [str(item) for item in read(data) if isinstance(item, CorruptError)]


def names(data: bytes) -> list[str]:
    return [item.name for item in read(data) if isinstance(item, TarMember)]


# --- tars of other programs


def tarfile_reads(path: Path) -> list[tuple[str, int, bytes | None]]:
    with tarfile.open(path) as tar:
        members = [member for member in tar if not member.isdir()]
        return [
            (member.name, member.offset, file.read() if member.isreg() and (file := tar.extractfile(member)) else None)
            for member in members
        ]


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files of every kind that tar can pack."""
    root = tmp_path_factory.mktemp("tree")
    long = root / ("l" * 120) / ("m" * 150 + ".txt")
    long.parent.mkdir()
    long.write_bytes(b"long names")
    (root / "a.b").mkdir()
    (root / "a.b" / "c.cls").write_bytes(b"7")
    os.link(root / "a.b" / "c.cls", root / "a.b" / "hard.cls")
    os.symlink("c.cls", root / "a.b" / "soft.cls")
    os.mkfifo(root / "pipe.x")
    (root / "empty.txt").touch()
    (root / "ünï.txt").write_bytes(b"u")
    (root / os.fsdecode(b"\xff\xfe.txt")).write_bytes(b"not UTF-8")
    with (root / "sparse.bin").open("wb") as file:
        for place in range(60):  # more pieces than one header holds
            file.seek(place * 200_000)
            file.write(b"piece" * place)
        file.truncate(20_000_000)
    return root


GNU_TAR = {
    "v7": ["--format=v7"],
    "oldgnu": ["--format=oldgnu"],
    "gnu": ["--format=gnu"],
    "gnu sparse": ["--format=gnu", "--sparse"],
    "gnu labelled": ["--format=gnu", "--label=volume"],
    "ustar": ["--format=ustar"],
    "pax": ["--format=pax"],
    "pax sparse 0.0": ["--format=pax", "--sparse", "--sparse-version=0.0"],
    "pax sparse 0.1": ["--format=pax", "--sparse", "--sparse-version=0.1"],
    "pax sparse 1.0": ["--format=pax", "--sparse", "--sparse-version=1.0"],
}


@pytest.mark.parametrize("options", GNU_TAR.values(), ids=GNU_TAR)
def test_tars_of_gnu_tar_are_read(tree: Path, tmp_path: Path, options: list[str]) -> None:
    path = tmp_path / "x.tar"
    subprocess.run(["tar", *options, "-cf", path, "-C", tree.parent, tree.name], stderr=subprocess.DEVNULL, check=False)
    got = [item for item in read(path.read_bytes(), 2**20) if isinstance(item, TarMember)]
    expected = [entry for entry in tarfile_reads(path) if entry[0] != "volume"]
    assert [(member.name, member.offset) for member in got] == [entry[:2] for entry in expected]
    for member, (_, _, data) in zip(got, expected, strict=True):
        assert (member.data == data and not member.problem) if data is not None else member.problem, member.place


@pytest.mark.parametrize("format", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
@settings(deadline=None)
@given(members=st.lists(st.tuples(st.from_regex(r"[a-z/é.]{1,80}", fullmatch=True), st.binary(max_size=1200))))
def test_tars_of_python_are_read_in_any_chunks(format: int, members: list[tuple[str, bytes]]) -> None:
    members = [(name.strip("/") or "x", data) for name, data in members]
    got = read(tar_bytes(members, format=format), 333)
    assert [(item.name, item.data) for item in got if isinstance(item, TarMember)] == members
    assert len(got) == len(members)


def test_links_and_devices_have_no_bytes(tree: Path, tmp_path: Path) -> None:
    path = tmp_path / "x.tar"
    subprocess.run(["tar", "-cf", path, "-C", tree, "a.b", "pipe.x"], check=True)
    problems = {item.name: item.problem for item in read(path.read_bytes()) if isinstance(item, TarMember)}
    assert problems.pop("a.b/soft.cls") == "is a symbolic link to 'c.cls', and has no bytes of its own"
    assert problems.pop("pipe.x") == "is a FIFO"
    hard = [problem for problem in problems.values() if problem]  # the file system decides their order
    assert len(problems) == 2
    assert len(hard) == 1
    assert hard[0].startswith("is a hard link to ")


def test_a_file_whose_name_ends_in_a_slash_is_a_file() -> None:
    """As in Python's tarfile. Its bytes are never read as members."""
    inner = header("smuggled.txt", 5) + padded(b"inner")
    data = header("b.txt/", len(inner)) + inner + header("c.txt", 0) + bytes(1024)
    assert read(data) == [TarMember("b.txt/", 0, inner), TarMember("c.txt", 512 + len(inner))]
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        assert [(member.name, member.isreg()) for member in tar] == [("b.txt/", True), ("c.txt", True)]
    pax_named = pax({"path": "b.txt/"}) + header("x", len(inner)) + inner + header("c.txt", 0) + bytes(1024)
    assert names(pax_named) == ["b.txt/", "c.txt"]


def test_an_old_directory_with_bytes_raises() -> None:
    assert names(header("old/", 0, b"\0") + header("c.txt", 0) + bytes(1024)) == ["c.txt"]
    inner = header("smuggled.txt", 0) * 2
    directory, after = read(header("old/", len(inner), b"\0") + inner + header("c.txt", 0) + bytes(1024))
    assert isinstance(directory, TarMember)
    assert directory.problem == "is a directory in an old tar, but has 1,024 bytes"
    assert isinstance(after, TarMember)
    assert after.name == "c.txt"


def sparse_members(count: int, holes: int) -> bytes:
    return b"".join(old_gnu([], holes, b"", f"{number}.bin") for number in range(count)) + bytes(1024)


def test_holes_of_a_tar_are_bounded_by_its_stored_bytes() -> None:
    """The bytes of the file count, compressed or not."""
    data = sparse_members(5, 2**25)
    for stored in (data, gzip.compress(data)):
        members = [item for item in read(stored) if isinstance(item, TarMember)]
        assert [len(member.data) for member in members] == [2**25, 2**25, 0, 0, 0]
        assert str(members[2].problem).startswith(
            "is sparse: with it, the tar's holes have 100,663,296 bytes, but only"
        )
        assert "64 MiB and 1,000 times the stored bytes: pack it without --sparse" in members[2].hint
    plenty = sparse_members(5, 2**25)[:-1024] + header("big.bin", 2**17) + bytes(2**17 + 1024)
    assert all(item.problem is None for item in read(plenty, 2**20) if isinstance(item, TarMember))


PIECES = 10_000
MAPS = {
    "pax records": pax_lines("comment=x", times=PIECES),
    "a sparse map 0.0": pax_lines("GNU.sparse.offset=0", "GNU.sparse.numbytes=0", times=PIECES // 2),
    "a sparse map 0.1": pax({"GNU.sparse.size": "9", "GNU.sparse.map": "0," * PIECES + "0"}),
    "a sparse map 1.0": pax_sparse(
        {"GNU.sparse.major": "1", "GNU.sparse.realsize": "0"}, b"%d\n" % PIECES + b"0\n" * PIECES * 2
    ),
    "a sparse map of type S": header("s.bin", 0, b"S", at_482=b"\1")
    + (bytes(504) + b"\1" + bytes(7)) * 476
    + bytes(512),
}


@pytest.mark.parametrize("name", MAPS)
def test_records_and_pieces_are_bounded_by_the_tars_bytes(name: str) -> None:
    """Each of them alone is allowed."""
    member = MAPS[name] + (b"" if "1.0" in name or "S" in name else header("a.bin", 0))
    assert not any("too many records" in error for error in errors(member + bytes(1024)))
    found = errors(gzip.compress(member * 60 + bytes(1024)))
    assert any(
        "the tar's headers and sparse maps have too many records; the limit is 262,144" in each for each in found
    )


def test_a_name_beyond_64_kib_raises_and_is_cut() -> None:
    data = (
        pax({"path": "n" * 70_000 + ".txt"})
        + header("short.txt", 3)
        + padded(b"abc")
        + header("c.txt", 0)
        + bytes(1024)
    )
    long, after = read(data)
    assert isinstance(long, TarMember)
    assert long.problem == "has a name of 70,004 bytes; the limit is 65,536"
    assert len(long.place) < 2000
    assert isinstance(after, TarMember)
    assert after.name == "c.txt"


def test_a_value_of_4_gib_is_not_read_into_memory() -> None:
    info = tarfile.TarInfo("big.bin")
    info.size = 2**32 - 1
    chunks = iter([info.tobuf(), *[bytes(2**24)] * 256, bytes(1024)])
    (member,) = read_members(chunks, file="x.tar")
    assert isinstance(member, TarMember)
    assert member.problem == "is too large: 4,294,967,295 bytes; a value must be smaller than 4 GiB"


# --- damage


def test_an_empty_tar_has_no_members_and_no_errors() -> None:
    assert read(tar_bytes([])) == []
    assert read(bytes(1024)) == []


@pytest.mark.parametrize("data", [b"hello", b"no tar at all\n" * 1000, os.urandom(5000), bytes(range(256)) * 4])
def test_another_file_is_reported_as_no_tar(data: bytes) -> None:
    assert errors(data) == ["x.tar: offset 0: is not a tar"]


def test_a_file_of_no_bytes_is_an_error() -> None:
    assert errors(b"") == ["x.tar: offset 0: is empty, without even an end-of-archive block"]


def test_any_truncation_raises_after_the_whole_members() -> None:
    for size in range(1, END + 512):
        got = read(CLOSED[:size], 10**6)
        assert isinstance(got[-1], CorruptError), size
        assert len(got) - 1 in (size // 1024, (size + 1023 - 512) // 1024), size


def test_a_cut_names_the_member_and_its_offset() -> None:
    (error,) = errors(CLOSED[: 2048 + 512 + 3])
    assert error.startswith("x.tar: member 'doc/00001.txt', offset 2048: tar is truncated in the middle of this member")
    assert error.endswith(" (expected 9, found 3)")
    after = "x.tar: offset 2048, after member 'doc/00000.cls': "
    assert errors(CLOSED[: 2048 + 100]) == [after + "tar is truncated in the middle of a header"]
    assert errors(CLOSED[:2048]) == [after + "tar has no end-of-archive block: it may be truncated, and lack members"]


@pytest.mark.parametrize("left", [512, 700, 1024, 5000])
def test_one_block_of_zeros_closes_a_tar(left: int) -> None:
    assert errors(CLOSED[: END + left]) == []


def test_every_flipped_byte_of_a_header_is_found() -> None:
    for place in range(2048, 2560):
        data = bytearray(CLOSED)
        data[place] ^= 0x01
        found = errors(bytes(data))
        if not 148 <= place - 2048 < 156:  # the checksum's text may still have the same value
            assert found, place
        for error in found:
            assert error.startswith("x.tar: offset 2048, after member 'doc/00000.cls': header is damaged")


def test_reading_continues_at_the_next_undamaged_header() -> None:
    data = bytearray(CLOSED)
    data[2048] ^= 0xFF
    got = [item.name if isinstance(item, TarMember) else "damage" for item in read(bytes(data))]
    assert got[:4] == ["doc/00000.txt", "doc/00000.cls", "damage", "doc/00001.cls"]
    assert len(got) == 10


@pytest.mark.parametrize("garbage", [b"x" * 512, b"\xff" * 1536, b"odd size"])
def test_garbage_between_members_is_an_error(garbage: bytes) -> None:
    assert len(errors(CLOSED[:2048] + garbage + CLOSED[2048:])) == 1


def test_bytes_after_the_end_are_an_error() -> None:
    twice = CLOSED + tar_bytes([("other.txt", b"o")])
    message = "there are bytes after the end of the archive; if tars were concatenated, convert them one by one"
    assert errors(twice) == [f"x.tar: offset {len(CLOSED)}, after member 'doc/00004.cls': {message}"]
    assert names(twice)[-1] == "other.txt"


@pytest.mark.parametrize("place", [512, 520, 1030])
def test_a_damaged_pax_header_is_an_error(place: int) -> None:
    data = bytearray(tar_bytes([("n" * 200 + ".txt", b"x")]))
    assert b"PaxHeader" in data[:100]
    data[place] = 0
    assert len(errors(bytes(data))) >= 1


def test_a_huge_extended_header_is_damage_without_allocation() -> None:
    info = tarfile.TarInfo("x")
    info.type, info.size = tarfile.GNUTYPE_LONGNAME, 2**40
    assert "size of an extended header is damaged" in errors(info.tobuf(tarfile.GNU_FORMAT) + CLOSED)[0]


@settings(deadline=None)
@given(place=st.integers(0, len(CLOSED) - 1), lost=st.integers(0, 1), inserted=st.binary(max_size=2))
def test_any_damage_is_found_or_harmless(place: int, lost: int, inserted: bytes) -> None:
    """Any changed, lost or added byte: no exception, and no invented member."""
    known = set(names(CLOSED))
    for item in read(CLOSED[:place] + inserted + CLOSED[place + lost :]):
        assert isinstance(item, CorruptError) or item.name in known


def test_checksums_of_signed_bytes_are_accepted() -> None:
    header = bytearray(CLOSED[:512])
    header[265:269] = b"\xe9\xe9\xe9\xe9"  # the owner's name
    total = sum(header[:148]) + sum(header[156:]) + 8 * 32 - 4 * 256
    header[148:156] = b"%06o\0 " % total
    assert errors(bytes(header) + CLOSED[512:]) == []


def test_sizes_in_base_256_are_read() -> None:
    buffer = io.BytesIO()
    info = tarfile.TarInfo("x.bin")
    info.size = 3
    header = bytearray(info.tobuf(tarfile.GNU_FORMAT))
    header[124:136] = b"\x80" + (3).to_bytes(11, "big")
    header[148:156] = b"%06o\0 " % (sum(header[:148]) + sum(header[156:]) + 8 * 32)
    buffer.write(header + b"abc".ljust(512, b"\0") + bytes(1024))
    assert read(buffer.getvalue()) == [TarMember("x.bin", 0, b"abc")]
