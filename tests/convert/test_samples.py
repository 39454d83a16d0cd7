"""Members become samples as WebDataset groups them; what would be lost in silence there is an error here."""

from __future__ import annotations

import pytest

from mdsx import CorruptError, MdsxError
from mdsx.convert.archive import Member
from mdsx.convert.samples import TarSample, group_samples, split_name

DAMAGE = CorruptError("header is damaged", file="x.tar", place="offset 512")


def group(*items: str | Member | CorruptError) -> list[TarSample | MdsxError]:
    members = [Member(item, 512 * place) if isinstance(item, str) else item for place, item in enumerate(items)]
    return list(group_samples(members, file="x.tar"))


def shape(items: list[TarSample | MdsxError]) -> list[tuple[str, str] | str]:
    return [(item.key, " ".join(item.members)) if isinstance(item, TarSample) else "error" for item in items]


def error(items: list[TarSample | MdsxError]) -> str:
    return str(next(item for item in items if isinstance(item, MdsxError)))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("0001.jpg", ("0001", "jpg")),
        ("x.seg.png", ("x", "seg.png")),
        ("a.b/c.jpg", ("a.b/c", "jpg")),
        ("./0001.jpg", ("./0001", "jpg")),
        ("/abs/x.tar.gz", ("/abs/x", "tar.gz")),
        ("X.Seg.PNG", ("X", "seg.png")),
        ("README", ("README", "")),
        ("x.", ("x", "")),
    ],
)
def test_key_is_the_name_up_to_the_first_dot_after_the_last_slash(name: str, expected: tuple[str, str]) -> None:
    assert split_name(name) == expected


def test_adjacent_members_of_one_key_are_a_sample() -> None:
    assert shape(group("1.jpg", "1.cls", "2.jpg", "2.cls")) == [("1", "jpg cls"), ("2", "jpg cls")]


def test_hidden_files_are_left_out_and_part_nothing() -> None:
    items = group("._1.jpg", "1.jpg", "._1.cls", "1.cls", ".DS_Store", "d/._2.x", "2.jpg")
    assert shape(items) == [("1", "jpg cls"), ("2", "jpg")]


def test_a_key_that_comes_back_is_an_error_and_the_sample_is_none() -> None:
    items = group("1.jpg", "2.jpg", "1.cls", "1.txt", "3.jpg")
    assert shape(items) == [("1", "jpg"), ("2", "jpg"), "error", ("3", "jpg")]
    assert error(items).startswith("x.tar: member '1.cls', offset 1024: duplicate key: '1' was here before; ")


def test_a_column_twice_in_a_sample_is_an_error() -> None:
    items = group("1.jpg", "1.JPG", "1.cls", "2.jpg")
    assert shape(items) == ["error", ("2", "jpg")]
    assert error(items) == "x.tar: member '1.JPG', offset 512: sample has column 'jpg' twice"


@pytest.mark.parametrize(
    ("member", "problem"),
    [
        (Member("README", 512), "x.tar: member 'README', offset 512: has no extension, so no column"),
        (Member("2.jpg", 512, problem="is a FIFO"), "x.tar: member '2.jpg', offset 512: is a FIFO"),
        (Member("\udcff.jpg", 512), "x.tar: member '\\\\xff.jpg', offset 512: name is not UTF-8"),
    ],
)
def test_a_member_without_column_bytes_or_name_is_an_error(member: Member, problem: str) -> None:
    items = group("1.jpg", member, "3.jpg")
    assert shape(items) == [("1", "jpg"), "error", ("3", "jpg")]
    assert error(items) == problem


def test_a_sample_is_reported_once_however_much_is_wrong() -> None:
    assert shape(group(Member("1.a", 0, problem="is a FIFO"), "1.b", "1.b", "2.b")) == ["error", ("2", "b")]


def test_next_to_damage_the_sample_before_is_torn_and_the_one_behind_is_none() -> None:
    before, damage, sample, behind, last = group("0.jpg", "1.jpg", DAMAGE, "2.cls", "3.jpg")[0:5]
    assert (before, sample) == (
        TarSample("0", {"jpg": Member("0.jpg", 0)}),
        TarSample("1", {"jpg": Member("1.jpg", 512)}, torn=True),
    )
    assert damage is DAMAGE
    assert "stands behind damage" in str(behind)
    assert isinstance(last, TarSample)
    assert not last.torn
