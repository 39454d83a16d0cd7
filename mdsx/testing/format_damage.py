"""No format returns a wrong value: not from damaged, swapped or replaced objects, nor from the cache.

A format without checksums cannot detect wrong values, and says so (`StoredIndex.checks`). It must still raise only
errors of mdsx, and detect every file of a wrong size.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path

import mdsx
from mdsx.checks.damage import verify
from mdsx.format import ReadsParts
from mdsx.shards import read_index
from mdsx.testing.far_disk import SCHEME, FarDisk
from mdsx.testing.format_case import FormatCase, Often
from mdsx.testing.subject import COUNT, FIRST, OTHER, PER_SHARD, SHARDS, Sample, Subject, all_of, sample

WRONG = 1
"""The shard that is damaged."""

MINE = slice(WRONG * PER_SHARD, (WRONG + 1) * PER_SHARD)


def flip(place: float, bit: int = 1) -> Callable[[bytes], bytes]:
    def damage(data: bytes) -> bytes:
        at = int(place * len(data))
        return data[:at] + bytes([data[at] ^ bit]) + data[at + 1 :]

    return damage


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "truncated": lambda data: data[:-1],
    "halved": lambda data: data[: len(data) // 2],
    "emptied": lambda data: b"",
    "grown": lambda data: data + b"\n",
    "doubled": lambda data: data * 2,
}


def shard_file(folder: Path, shard: int = WRONG) -> Path:
    return folder / read_index(FarDisk(folder)).name(shard)


def change(path: Path, damage: Callable[[bytes], bytes]) -> None:
    """Replace a file as a writer does."""
    new = path.with_name("new")
    new.write_bytes(damage(path.read_bytes()))
    new.replace(path)


def expected(subject: Subject, numbers: slice) -> list[Sample]:
    return [subject.expected(FIRST + number) for number in range(COUNT)[numbers]]


def read(url: str, cache: Path) -> list[list[Sample] | mdsx.MdsxError]:
    """Read the damaged shard sample by sample, then whole. Return the samples, or the errors."""
    found: list[list[Sample] | mdsx.MdsxError] = []
    for ask in (lambda data: [data[MINE.start]], lambda data: data[MINE]):
        shutil.rmtree(cache, ignore_errors=True)
        try:
            found.append(all_of(ask(mdsx.Dataset(url, cache=cache))))
        except mdsx.MdsxError as error:
            found.append(error)
    return found


# --- the cache


def cached_files(cache: Path) -> list[Path]:
    return sorted(path for path in cache.rglob("*.mdsx") if path.stat().st_size)


IN_CACHE = {**DAMAGE, "first": flip(0.0), "middle": flip(0.5), "last": flip(0.9999)}


class Damage(FormatCase):
    """No wrong value is returned."""

    def test_a_changed_byte_of_an_object_changes_no_value(
        self, subject: Subject, folder: Path, far: str, tmp_path: Path, often: Often
    ) -> None:
        path, chance = shard_file(folder), random.Random(5)
        undamaged, right = path.read_bytes(), expected(subject, MINE)
        places = {0, len(undamaged) - 1, *(chance.randrange(len(undamaged)) for _ in range(often(10, 1000)))}
        raised = 0
        for place in sorted(places):
            path.write_bytes(flip(place / len(undamaged) + 1e-9, 1 << chance.randrange(8))(undamaged))
            first, whole = read(far, tmp_path / "cache")
            raised += isinstance(whole, mdsx.MdsxError)
            if subject.proves:
                assert isinstance(first, mdsx.MdsxError) or first == right[:1]
                assert isinstance(whole, mdsx.MdsxError) or whole == right
        assert raised

    def test_a_changed_byte_of_the_index_changes_no_value(
        self, subject: Subject, folder: Path, far: str, tmp_path: Path, often: Often
    ) -> None:
        path, chance = folder / subject.format.index_key, random.Random(6)
        undamaged, right = path.read_bytes(), expected(subject, MINE)
        fingerprint = mdsx.Dataset(far).fingerprint
        for place in [0, *(chance.randrange(len(undamaged)) for _ in range(often(10, 1000)))]:
            path.write_bytes(flip(place / len(undamaged) + 1e-9)(undamaged))
            try:
                data = mdsx.Dataset(far, cache=tmp_path / "other cache")
                assert data.fingerprint != fingerprint or all_of(data[MINE]) == right
            except mdsx.MdsxError:
                continue

    def test_an_object_of_another_size_is_an_error(
        self, subject: Subject, folder: Path, far: str, tmp_path: Path
    ) -> None:
        path = shard_file(folder)
        undamaged = path.read_bytes()
        for name, damage in DAMAGE.items():
            change(path, damage)
            for found in read(str(folder) if name == "grown" else far, tmp_path / "cache"):
                assert isinstance(found, mdsx.MdsxError)
                assert path.name in str(found)
            path.write_bytes(undamaged)
        change(path, DAMAGE["halved"])
        if subject.reads is not ReadsParts:
            assert all_of(mdsx.Dataset(far)[: MINE.start]) == expected(subject, slice(0, MINE.start))

    def test_a_missing_object_is_an_error(self, folder: Path, far: str, tmp_path: Path) -> None:
        path = shard_file(folder)
        path.unlink()
        for url in (far, str(folder)):
            for found in read(url, tmp_path / "cache"):
                assert isinstance(found, mdsx.MissingError)
                assert path.name in str(found)

    def test_an_object_of_another_dataset_is_an_error(
        self, subject: Subject, folder: Path, other: Path, far: str, tmp_path: Path
    ) -> None:
        path = shard_file(folder)
        shutil.copyfile(shard_file(other), path)
        for found in read(far, tmp_path / "cache"):
            assert isinstance(found, mdsx.MdsxError) or not subject.proves

    def test_verify_reports_each_damaged_object(self, subject: Subject, folder: Path) -> None:
        assert verify(folder).ok
        path = shard_file(folder)
        undamaged = path.read_bytes()
        for name, damage in {**DAMAGE, "changed": flip(0.9)}.items():
            change(path, lambda _, damage=damage: damage(undamaged))  # type: ignore[misc]
            report = verify(folder)
            assert not report.ok or (name == "changed" and not subject.proves)
            assert all(path.name in str(problem) for problem in report)
            assert (report.format, report.samples, report.shards) == (subject.format.name, COUNT, SHARDS)
        path.unlink()
        for problem in verify(folder):
            assert isinstance(problem, mdsx.MissingError)
            assert "it held samples" in str(problem)

    def test_an_object_replaced_in_mid_run_gives_no_new_value(
        self, subject: Subject, folder: Path, other: Path, far: str, tmp_path: Path
    ) -> None:
        """Reading gives the old values or an error, never a mixture of both datasets."""
        right = expected(subject, MINE)
        data = mdsx.Dataset(far, cache=tmp_path / "cache")
        assert all_of([data[MINE.start]]) == right[:1]
        path = shard_file(folder)
        change(path, lambda _: shard_file(other).read_bytes())
        for numbers in ([MINE.start + 1], [*range(COUNT)[MINE]], [MINE.start + 2]):
            try:
                found = all_of(data[numbers])
            except mdsx.MdsxError:
                continue
            assert all(each in right for each in found)

    def test_damaged_files_of_the_cache_are_fetched_again(self, subject: Subject, far: str, tmp_path: Path) -> None:
        cache, right = tmp_path / "cache", expected(subject, slice(None))
        for number, damage in enumerate(IN_CACHE.values()):
            assert all_of(mdsx.Dataset(far, cache=cache)[:]) == right
            files = cached_files(cache)
            assert len(files) == SHARDS
            for path in files:
                path.write_bytes(damage(path.read_bytes()))
            data = mdsx.Dataset(far, cache=cache)
            assert all_of(data[:] if number % 2 else map(data.__getitem__, range(COUNT))) == right
            del data  # it maps the files, and so keeps them

    def test_swapped_files_of_the_cache_are_fetched_again(self, subject: Subject, tmp_path: Path) -> None:
        """Even if they have the same size and number of samples."""
        names, cache = subject.columns, tmp_path / "cache"
        shards = [[{name: sample(number)[name] for name in names}] * 9 for number in (FIRST, OTHER)]
        subject.write(tmp_path / "data", shards)
        right, url = [each for samples in shards for each in samples], f"{SCHEME}{tmp_path / 'data'}"
        assert all_of(mdsx.Dataset(url, cache=cache)[:]) == right
        first, last = cached_files(cache)
        contents = last.read_bytes(), first.read_bytes()
        first.write_bytes(contents[0])
        last.write_bytes(contents[1])
        assert all_of(mdsx.Dataset(url, cache=cache)[:]) == right
