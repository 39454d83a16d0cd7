"""Names become keys and columns, members become samples, as in WebDataset. Nothing is lost silently."""

from __future__ import annotations

from typing import Any

import pytest

from mdsx import CorruptError, MdsxError, UsageError
from mdsx.foreign.tars.grouping import TarSample, group_samples
from mdsx.foreign.tars.members import TarMember
from mdsx.foreign.tars.names import Names

DAMAGE = CorruptError("header is damaged", file="x.tar", place="offset 512")


def group(*items: str | TarMember | CorruptError, names: Names | None = None) -> list[TarSample | MdsxError]:
    members = [TarMember(item, 512 * place) if isinstance(item, str) else item for place, item in enumerate(items)]
    return list(group_samples(members, file="x.tar", names=names or Names()))


def shape(items: list[TarSample | MdsxError]) -> list[tuple[str, str] | str]:
    return [(item.key, " ".join(item.members)) if isinstance(item, TarSample) else "error" for item in items]


def error(items: list[TarSample | MdsxError]) -> str:
    return str(next(item for item in items if isinstance(item, MdsxError)))


def test_adjacent_members_with_one_key_form_a_sample() -> None:
    assert shape(group("1.jpg", "1.cls", "2.jpg", "2.cls")) == [("1", "jpg cls"), ("2", "jpg cls")]


def test_hidden_files_are_left_out_without_splitting_a_sample() -> None:
    items = group("._1.jpg", "1.jpg", "._1.cls", "1.cls", ".DS_Store", "d/._2.x", "2.jpg")
    assert shape(items) == [("1", "jpg cls"), ("2", "jpg")]


def test_a_repeated_key_is_an_error_and_no_sample() -> None:
    items = group("1.jpg", "2.jpg", "1.cls", "1.txt", "3.jpg")
    assert shape(items) == [("1", "jpg"), ("2", "jpg"), "error", ("3", "jpg")]
    assert error(items).startswith(
        "x.tar: member '1.cls', offset 1024: duplicate key: the tar has an earlier sample '1'; "
    )


def test_a_column_twice_in_a_sample_is_an_error() -> None:
    items = group("1.jpg", "1.JPG", "1.cls", "2.jpg")
    assert shape(items) == ["error", ("2", "jpg")]
    problem = "sample has column 'jpg' twice; --on-error skip leaves out the sample"
    assert error(items) == f"x.tar: member '1.JPG', offset 512: {problem}"


def test_two_members_renamed_to_one_column_raise_naming_both() -> None:
    items = group("1.jpg", "2.jpg", "2.png", names=Names(rename={"image": ("jpg", "png")}))
    assert shape(items) == [("1", "image"), "error"]
    assert error(items).startswith(
        "x.tar: member '2.png', offset 1024: sample has column 'image' twice: 'jpg' and 'png' become it; --drop png "
    )


def test_dropped_members_do_not_split_a_sample() -> None:
    link = TarMember("1.bak", 0, problem="is a FIFO")
    items = group("README", "1.jpg", link, "a/README", "1.cls", "2.txt", names=Names(drop=("BAK", "README", "txt")))
    assert shape(items) == [("1", "jpg cls")]


def test_holes_of_a_sample_are_bounded_by_its_stored_bytes() -> None:
    holes = bytes(2**25 + 1)
    sparse = [TarMember(f"1.{column}", 0, holes, holes=len(holes)) for column in "abc"]
    stored = TarMember("1.stored", 0, bytes(2**16))
    assert shape(group(stored, *sparse)) == [("1", "stored a b c")]
    items = group(*sparse, "2.x")
    assert shape(items) == ["error", ("2", "x")]
    assert "member '1.b', offset 0: sample is sparse: 67,108,866 bytes of holes, but only 0 are stored" in error(items)


@pytest.mark.parametrize(
    ("member", "problem"),
    [
        (
            TarMember("README", 512),
            "member 'README', offset 512: has no extension, so no column; --drop README leaves out",
        ),
        (TarMember("a b", 512), "member 'a b', offset 512: has no extension, so no column; --drop 'a b' leaves out"),
        (
            TarMember("b.txt/", 512),
            "member 'b.txt/', offset 512: is a file whose name ends in a slash: it has no",
        ),
        (TarMember("2.jpg", 512, problem="is a FIFO"), "member '2.jpg', offset 512: is a FIFO; --drop jpg leaves out"),
        (TarMember("\udcff.jpg", 512), "member '\\\\xff.jpg', offset 512: name is not UTF-8; --drop jpg leaves out"),
    ],
)
def test_a_member_without_column_bytes_or_name_raises(member: TarMember, problem: str) -> None:
    items = group("1.jpg", member, "3.jpg")
    assert shape(items) == [("1", "jpg"), "error", ("3", "jpg")]
    assert error(items).startswith(f"x.tar: {problem}")
    assert error(items).endswith("; --on-error skip leaves out the sample")


def test_a_sample_with_many_faults_is_reported_once() -> None:
    assert shape(group(TarMember("1.a", 0, problem="is a FIFO"), "1.b", "1.b", "2.b")) == ["error", ("2", "b")]


def test_damage_invalidates_the_samples_on_both_sides() -> None:
    before, damage, sample, behind, last = group("0.jpg", "1.jpg", DAMAGE, "2.cls", "3.jpg")[0:5]
    assert (before, sample) == (
        TarSample("0", {"jpg": TarMember("0.jpg", 0)}),
        TarSample("1", {"jpg": TarMember("1.jpg", 512)}, torn=True),
    )
    assert damage is DAMAGE
    assert "follows damage" in str(behind)
    assert isinstance(last, TarSample)
    assert not last.torn


# --- names


@pytest.mark.parametrize(
    ("name", "first", "last"),
    [
        ("0001.jpg", ("0001", "jpg"), ("0001", "jpg")),
        ("x.seg.png", ("x", "seg.png"), ("x.seg", "png")),
        ("cam.00001.jpg", ("cam", "00001.jpg"), ("cam.00001", "jpg")),
        ("2024.01.05.jpg", ("2024", "01.05.jpg"), ("2024.01.05", "jpg")),
        ("a.b/c.jpg", ("a.b/c", "jpg"), ("a.b/c", "jpg")),
        ("./0001.jpg", ("./0001", "jpg"), ("./0001", "jpg")),
        ("/abs/x.tar.gz", ("/abs/x", "tar.gz"), ("/abs/x.tar", "gz")),
        ("X.Seg.PNG", ("X", "seg.png"), ("X.Seg", "png")),
        ("README", ("README", ""), ("README", "")),
        ("a.b/README", ("a.b/README", ""), ("a.b/README", "")),
        ("x.", ("x", ""), ("x", "")),
    ],
)
def test_key_ends_at_the_first_or_last_dot(name: str, first: tuple[str, str], last: tuple[str, str]) -> None:
    """After the last slash."""
    assert Names("first-dot").split(name) == first
    assert Names("last-dot").split(name) == last


def test_several_extensions_become_one_column() -> None:
    for old in ("jpg;.JPEG;png", ["png", "jpg", "jpeg", "jpg"]):
        names = Names.parse("first-dot", {"image": old}, ())
        assert names.columns == {"jpg": "image", "jpeg": "image", "png": "image"}
        assert names == Names.parse("first-dot", {"image": ("jpeg", "jpg", "png")}, ())


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"key_until": "second-dot"}, "key_until is unknown .*expected first-dot or last-dot.*'second-dot'"),
        ({"rename": {"a": "x;y", "b": "y"}}, "extension 'y' is renamed twice .*a, b"),
        ({"rename": {"a": "x;"}}, "NEW=OLD"),
        ({"rename": {"a": []}}, "NEW=OLD"),
        ({"rename": {"__key__": "x"}}, "nothing can be renamed to it"),
        ({"rename": {'a"b': "x"}}, "name"),
        ({"rename": {"a": "x"}, "drop": ["X"]}, "extension 'X' is both renamed and dropped"),
        ({"drop": [""]}, "drop has an empty name"),
    ],
)
def test_contradictory_options_are_refused(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        Names.parse(**{"key_until": "first-dot", "rename": {}, "drop": (), **options})


def test_a_declared_column_without_an_extension_is_refused() -> None:
    names = Names.parse("first-dot", {"image": "jpg", "txt": "text;txt"}, ["json"])
    names.check_declared(["image", "txt", "cls"])
    with pytest.raises(UsageError, match="column 'jpg' is declared, but renamed to 'image'; declare 'image'"):
        names.check_declared(["jpg"])
    with pytest.raises(UsageError, match="column 'json' is declared, but dropped"):
        names.check_declared(["json"])


def test_options_that_match_no_member_are_named() -> None:
    names = Names.parse("first-dot", {"image": "jpg;webp", "text": "txt"}, ["README", "bak"])
    assert names.unused(["a/README", "a/1.webp", ".bak", "a/1.cls"]) == [
        "--drop bak: no member has this extension or file name; there are cls, webp",
        "--rename text=txt: no member has such an extension; there are cls, webp",
    ]
