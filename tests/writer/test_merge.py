"""Parts that were written separately become one dataset."""

from __future__ import annotations

import importlib
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from mdsx.datasets import Dataset
from mdsx.errors import ChangedError, MissingError, UsageError
from mdsx.format import parse_index
from mdsx.writer import Writer, merge
from tests.format import reference
from tests.writer.jobs import COLUMNS, SHARD_SIZE, contents, sample

COUNTS = (40, 0, 25)
merging = importlib.import_module("mdsx.writer.merge")


def write_part(root: Path, number: int, first: int, count: int, **options: Any) -> None:
    with Writer(root / f"part-{number:05d}", **{"columns": COLUMNS, "shard_size": SHARD_SIZE, **options}) as out:
        for one in range(first, first + count):
            out.write(sample(one))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Three parts, the second without samples, not written in the order of their numbers."""
    for number in (2, 0, 1):
        write_part(tmp_path, number, sum(COUNTS[:number]), COUNTS[number])
    return tmp_path


def test_the_root_index_has_the_parts_shards_in_order(root: Path) -> None:
    before = contents(root)
    merge(root)
    after = contents(root)
    data = after.pop("index.json")
    assert after == before  # no shard is touched
    assert data is not None
    index = parse_index(data)
    parts = [parse_index((root / f"part-{number:05d}" / "index.json").read_bytes()) for number in range(3)]
    entries = [
        part.shard_entry(shard)._replace(name=f"part-{number:05d}/shard.{shard:05d}.mdsx")
        for number, part in enumerate(parts)
        for shard in range(len(part.counts))
    ]
    assert [index.shard_entry(shard) for shard in range(len(index.counts))] == entries
    assert index.samples == sum(COUNTS)
    assert index.fingerprint == reference.fingerprint(json.loads(data))
    assert json.loads(data)["shards"]["files"] == [
        ["part-00000/shard.", ".mdsx", 0, len(parts[0].counts)],
        ["part-00002/shard.", ".mdsx", 0, len(parts[2].counts)],
    ]


def test_an_existing_index_is_replaced_only_on_request(root: Path) -> None:
    merge(root)
    before = contents(root)
    write_part(root, 3, 65, 5)
    with pytest.raises(UsageError, match=r"an index exists already.*overwrite=True"):
        merge(root)
    assert contents(root)["index.json"] == before["index.json"]
    merge(root, overwrite=True)
    assert parse_index((root / "index.json").read_bytes()).samples == 70


@pytest.mark.parametrize("overwrite", [False, True])
def test_an_index_that_another_program_stored_meanwhile_stays(
    root: Path, monkeypatch: pytest.MonkeyPatch, overwrite: bool
) -> None:
    if overwrite:
        merge(root)
    join = merging.join_lengths

    def meanwhile(*arguments: Any) -> None:
        (root / "index.json").write_bytes(b"another")
        join(*arguments)

    monkeypatch.setattr(merging, "join_lengths", meanwhile)
    with pytest.raises(ChangedError, match="another program has stored an index here meanwhile"):
        merge(root, overwrite=overwrite)
    assert (root / "index.json").read_bytes() == b"another"


def test_a_missing_part_is_named(root: Path) -> None:
    with pytest.raises(MissingError, match="part-00003: the part is missing"):
        merge(root, parts=4)
    shutil.rmtree(root / "part-00001")
    with pytest.raises(MissingError, match="part-00001: the part is missing"):
        merge(root)
    assert not (root / "index.json").exists()


def test_no_parts_raise_missing_error(tmp_path: Path) -> None:
    with pytest.raises(MissingError, match="part-00000: the part is missing"):
        merge(tmp_path)


def test_more_parts_than_expected_are_named(root: Path) -> None:
    with pytest.raises(UsageError, match=r"part-00002: too many parts.*expected 2 parts"):
        merge(root, parts=2)


def test_an_unfinished_conversion_is_not_merged(root: Path) -> None:
    (root / "_convert").mkdir()
    (root / "_convert" / "plan.json").write_text("{}")  # its last parts may be missing
    with pytest.raises(UsageError, match="a conversion to this folder is unfinished; run the conversion's command"):
        merge(root)
    with pytest.raises(MissingError, match="run its command again, and it continues"):
        Dataset(root)


def test_an_unfinished_part_is_named(root: Path) -> None:
    with pytest.raises(ZeroDivisionError), Writer(root / "part-00003", COLUMNS):
        raise ZeroDivisionError
    with pytest.raises(MissingError, match="part-00003: the part is unfinished"):
        merge(root)


def test_a_part_that_lost_a_shard_is_named(root: Path) -> None:
    (root / "part-00002" / "shard.00001.mdsx").unlink()
    with pytest.raises(MissingError, match=r"part-00002/shard\.00001\.mdsx: a shard of the part is missing"):
        merge(root)


@pytest.mark.parametrize(
    ("options", "place"),
    [
        ({"columns": {"other": "int8"}}, "columns"),
        ({"compression": "zstd"}, "compression"),
        ({"metadata": {"a": 1}}, "metadata"),
    ],
)
def test_an_unfitting_part_is_named(root: Path, options: dict[str, Any], place: str) -> None:
    write_part(root, 3, 0, 0, **options)
    with pytest.raises(UsageError, match=f"part-00003: {place}: the part does not fit the others"):
        merge(root)
    assert not (root / "index.json").exists()


def test_metadata_comes_from_the_parts_or_the_call(root: Path, tmp_path: Path) -> None:
    merge(root, metadata={"whole": True})
    assert parse_index((root / "index.json").read_bytes()).metadata == {"whole": True}
    alike = tmp_path / "alike"
    for number in range(2):
        write_part(alike, number, 0, 3, metadata={"kind": "part"})
    merge(alike)
    assert parse_index((alike / "index.json").read_bytes()).metadata == {"kind": "part"}


def test_a_folder_like_a_part_is_named(root: Path) -> None:
    (root / "part-7").mkdir()
    (root / "part-7" / "index.json").write_bytes(b"")
    with pytest.raises(UsageError, match="part-7: the name is similar to a part's"):
        merge(root)


def test_parts_beside_an_active_writer_are_not_merged(root: Path) -> None:
    with Writer(root, COLUMNS), pytest.raises(UsageError, match="an unfinished dataset is beside the parts"):
        merge(root)


def test_parts_with_too_many_shards_are_refused(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = contents(root)
    monkeypatch.setattr("mdsx.format.index_writer.MAX_SHARDS", 2)
    with pytest.raises(UsageError, match=r"at most 2 .*shard_size=\"1MiB\" or more"):
        merge(root)
    assert contents(root) == before
