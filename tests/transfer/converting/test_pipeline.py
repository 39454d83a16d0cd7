"""The pipeline writes blocks of samples as it writes single ones: also if some are invalid, and after a resume."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from mdsx import Dataset, MdsxError, SampleError
from mdsx.base.process import Workers
from mdsx.format import filenames
from mdsx.storage import open_storage
from mdsx.transfer.converting.conversion import convert_source
from mdsx.transfer.converting.progress import WatchReporter
from mdsx.transfer.converting.source import Block, Row, Unit
from tests.transfer.converting.numbers import Numbers

BAD = {3, 4, 17, 29}


class Blocks(Numbers):
    """The numbers of a unit in one block; those in BAD are texts."""

    as_arrow = False
    dies_at: int | None = None

    def read(
        self, unit: Unit, columns: Mapping[str, str], count: Callable[[int], object]
    ) -> Generator[Row | Block | MdsxError, None, None]:
        values = [f"{number}" if number in BAD else number for number in range(unit.start, unit.stop)]
        if self.dies_at in range(unit.start, unit.stop):
            raise MdsxError("unplugged")
        if self.as_arrow:
            whole = [value if isinstance(value, int) else None for value in values]
            yield Block(pa.table({"x": pa.array(whole, pa.int64())}), len(values), lambda place: unit.start + place)
        else:
            yield Block({"x": values}, len(values), lambda place: unit.start + place)


def converted(folder: Path, source: Numbers, **options: Any) -> Any:
    given = {"on_error": "skip", "shard_size": "100B", "watch": lambda progress: None, "parts": 1, **options}
    storage = open_storage(folder, write=True)
    return convert_source(source, storage, compression=None, workers=Workers.of(1, None), storage_options=None, **given)


def files(folder: Path) -> dict[str, bytes]:
    found = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    return {name: data for name, data in found.items() if "index" not in name}


@pytest.mark.parametrize("as_arrow", [False, True])
def test_only_the_invalid_samples_of_a_block_are_left_out(tmp_path: Path, as_arrow: bool) -> None:
    problems: list[str] = []
    source = Blocks(2, 20)
    source.as_arrow = as_arrow
    made = converted(tmp_path, source, watch=lambda progress: problems.extend(map(str, progress.problems)))
    assert (made.samples, made.skipped) == (36, 4)
    assert [sample["x"] for sample in Dataset(tmp_path)] == [n for n in range(40) if n not in BAD]
    assert [problem.partition(":")[0] for problem in problems] == ["/numbers"] * 4
    assert "number 17, column 'x'" in problems[2]


def test_the_errors_of_a_unit_are_delivered_before_it_is_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A unit that is stored is not read again: if its worker died before, nobody would report its errors."""
    reported: list[str] = []
    delivered: list[tuple[int, bool]] = []

    def deliver(reporter: WatchReporter) -> None:
        keys = [entry.key for entry in open_storage(tmp_path).list(filenames.CONVERT_FOLDER)]
        delivered.append((len(reported), filenames.convert_record(0) in keys))

    monkeypatch.setattr(WatchReporter, "deliver", deliver, raising=False)
    converted(tmp_path, Blocks(3, 20), watch=lambda progress: reported.extend(map(str, progress.problems)))
    assert delivered == [(3, False), (4, False)]  # the third unit has no error


def test_what_an_attempt_left_that_died_late_is_removed(tmp_path: Path) -> None:
    """A node that was cut off may write, and die, after another one has taken its part over."""
    names = {filenames.CONVERT_FOLDER: "part.00000.json", "part-00000": "shard.00000.mdsx"}
    left = [tmp_path / folder / filenames.temporary(name, "0" * 16) for folder, name in names.items()]

    def leave(progress: object) -> None:
        for path in left:
            path.parent.mkdir(exist_ok=True)
            path.touch()

    converted(tmp_path, Blocks(3, 20), watch=leave)
    assert [path for path in left if path.exists()] == []
    assert len(Dataset(tmp_path)) == 56


def test_an_invalid_sample_of_a_block_is_named(tmp_path: Path) -> None:
    with pytest.raises(SampleError, match="/numbers: number 3, column 'x': does not fit int64"):
        converted(tmp_path, Blocks(2, 20), on_error="raise")


@pytest.mark.parametrize("as_arrow", [False, True])
@pytest.mark.parametrize("dies_at", [20, 30, 50])
def test_a_rerun_continues_within_a_block(tmp_path: Path, as_arrow: bool, dies_at: int) -> None:
    source = Blocks(3, 20)
    source.as_arrow = as_arrow
    converted(tmp_path / "undisturbed", source)
    source.dies_at = dies_at
    with pytest.raises(MdsxError, match="unplugged"):
        converted(tmp_path / "out", source)
    source.dies_at = None
    assert converted(tmp_path / "out", source).samples == 56
    assert files(tmp_path / "out") == files(tmp_path / "undisturbed")
