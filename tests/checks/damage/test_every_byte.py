"""Every changed byte of a dataset is found and blamed on the sample that owns it: each byte of each file."""

from __future__ import annotations

import random
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, cast

import pytest
import zstandard

import mdsx
from mdsx.checks.damage import ShardRepair
from mdsx.checks.damage.examine import examine
from mdsx.errors import FormatError
from mdsx.format import parse_index
from mdsx.storage import Storage, open_storage
from tests.checks.damage.datasets import holds, plain_shards, samples, write
from tests.checks.damage.memory import MemoryStorage
from tests.conftest import Often
from tests.format.test_check import change_of

WRITTEN = samples(12, blob=20)
STORED = [None, "zstd"]


@pytest.fixture(scope="module", params=STORED)
def dataset(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("dataset")
    write(root, WRITTEN, shard_size=800, compression=request.param, metadata={"by": "us"})
    return root


def values(often: Often, place: int) -> Iterable[int]:
    """Return the bits to flip in the byte at `place`, in each of these ways: all combinations with `--long`."""
    return range(1, 256) if often(0, long=1) else (change_of(place),)


class Examined:
    """The shards of a dataset in memory, examined as by `verify` and `repair`."""

    def __init__(self, root: Path) -> None:
        self.storage = MemoryStorage(root)
        self.index = parse_index(self.storage.files["index.json"])
        self.names = [self.index.name(shard) for shard in range(len(self.index.counts))]
        self.firsts = [int(self.index.counts[:shard].sum()) for shard in range(len(self.names))]

    def find(self, shard: int, stored: bytes | None) -> ShardRepair:
        """Examine these bytes instead of the shard."""
        name = self.names[shard]
        before = self.storage.files.pop(name)
        if stored is not None:
            self.storage.files[name] = stored
        try:
            storage = cast(Storage, self.storage)
            return examine(storage, self.index, shard, name, first=self.firsts[shard]).report
        finally:
            self.storage.files[name] = before


def blamed(finding: ShardRepair) -> set[int]:
    """Return the samples that the messages name, by their numbers in the dataset."""
    found = set()
    for problem in finding.problems:
        if match := re.fullmatch(r"sample (\d+) \((\d+) of the dataset\).*", problem.place or ""):
            found.add(int(match[2]))
        for ranges in re.findall(r"\(([-0-9, ]+) of the dataset\)", problem.message):
            for part in ranges.split(", "):
                start, _, stop = part.partition("-")
                found |= {*range(int(start), int(stop or start) + 1)}
    return found


def lost(finding: ShardRepair, first: int) -> set[int]:
    return {first + number for start, stop in finding.lost for number in range(start, stop)}


@pytest.mark.slow
def test_every_changed_byte_of_a_shard_is_found(dataset: Path, often: Often) -> None:
    examined = Examined(dataset)
    plain = plain_shards(dataset) if examined.index.compression is None else None
    unpack = zstandard.ZstdDecompressor().decompress
    for shard, name in enumerate(examined.names):
        stored = examined.storage.files[name]
        assert not examined.find(shard, stored).problems
        all_of_it = {*range(examined.firsts[shard], examined.firsts[shard] + int(examined.index.counts[shard]))}
        table = len(stored) - 25  # after the only frame
        raw = b"" if plain else unpack(stored)
        for place in range(len(stored)):
            for change in values(often, place):
                damaged = stored[:place] + bytes([stored[place] ^ change]) + stored[place + 1 :]
                finding = examined.find(shard, damaged)
                assert len(finding.problems) == 1, (name, place, change, finding.problems)
                assert finding.problems[0].file == f"memory/{name}"
                if plain:
                    owners = plain[shard].lost([place])
                elif holds(damaged[:table], raw):  # a bit without a meaning
                    owners, where = set(), "seek table" if place >= table else "XXH3-128"
                    assert (finding.problems[0].place or "").startswith(where)
                else:
                    owners = all_of_it
                    assert finding.problems[0].place == "frame 0"
                assert lost(finding, examined.firsts[shard]) == owners, (name, place, change)
                named = {plain[shard].whose[place]} if plain and place in plain[shard].checksums else owners
                assert blamed(finding) == named, (name, place, change)


def test_every_wrong_length_of_a_shard_is_found(dataset: Path) -> None:
    examined = Examined(dataset)
    for shard, name in enumerate(examined.names):
        stored = examined.storage.files[name]
        for size in range(len(stored)):
            finding = examined.find(shard, stored[:size])
            assert finding.problems, (name, size)
            assert blamed(finding) == lost(finding, examined.firsts[shard])
        for more in (b"\0", b"!", b"more" * 1000):
            finding = examined.find(shard, stored + more)
            assert [problem.place for problem in finding.problems] == [f"byte {len(stored)}"]
            assert finding.lost == ()


def test_a_swapped_or_missing_shard_is_found(dataset: Path) -> None:
    examined = Examined(dataset)
    for shard, name in enumerate(examined.names):
        for other in examined.names:
            finding = examined.find(shard, examined.storage.files[other])
            assert bool(finding.problems) == (other != name)
            assert finding.kept == (int(examined.index.counts[shard]) if other == name else 0)
        (problem,) = examined.find(shard, None).problems
        assert isinstance(problem, mdsx.MissingError)


def test_every_changed_byte_or_length_of_the_index_is_found(dataset: Path, often: Often) -> None:
    data = (dataset / "index.json").read_bytes()
    damaged = [data[:size] for size in range(len(data))] + [data + b"\n", data + b" ", b" " + data, data[:-1]]
    for place in range(len(data)):
        damaged += [data[:place] + bytes([data[place] ^ change]) + data[place + 1 :] for change in values(often, place)]
        damaged.append(data[:place] + b" " + data[place:])
        damaged.append(data[:place] + b"\n" + data[place + 1 :])
    for one in damaged:
        if one != data:
            with pytest.raises(FormatError):
                parse_index(one)


@pytest.mark.slow_if("id == 'zstd'")
def test_the_command_finds_the_same_damage(dataset: Path, tmp_path: Path, often: Often) -> None:
    """For some of these changes, the command exits with status 1 and a line that names the file."""
    rng, root = random.Random(5), tmp_path / "x"
    shutil.copytree(dataset, root)
    command = [sys.executable, "-m", "mdsx", "verify", str(root)]
    assert subprocess.run(command, capture_output=True, check=False).returncode == 0
    for _ in range(often(1, long=60)):
        path = rng.choice(sorted(root.iterdir()))
        undamaged = path.read_bytes()
        place, data = rng.randrange(len(undamaged)), bytearray(undamaged)
        data[place] ^= 1 << rng.randrange(8)
        path.write_bytes(data)
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        path.write_bytes(undamaged)
        assert result.returncode == 1, (path, place)
        assert f"{path}" in (result.stdout + result.stderr).splitlines()[0]
        assert "Traceback" not in result.stderr


@pytest.mark.parametrize("compression", STORED)
def test_changed_bytes_are_found_on_s3(compression: str | None, s3_url: str, often: Often) -> None:
    url = f"{s3_url}/x"
    write(url, WRITTEN, shard_size=1500, compression=compression)
    storage = open_storage(url)
    for entry in list(storage.list()):
        data = storage.get(entry.key).data
        step = max(1, len(data) // often(3, long=100))
        for place in range(0, len(data), step):
            storage.put(entry.key, data[:place] + bytes([data[place] ^ 0x40]) + data[place + 1 :])
            found: list[Any] = list(mdsx.verify(url))
            assert found, (entry.key, place)
            assert {damage.file for damage in found} == {f"{url}/{entry.key}"}
        storage.put(entry.key, data)
    assert list(mdsx.verify(url)) == []
