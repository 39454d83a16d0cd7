"""Verification finds every damage with its place, and none in an undamaged dataset."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import mdsx
from mdsx import Progress
from mdsx.checks.damage import verify

COLUMNS = {"text": "str", "number": "int64", "blob": "bytes?"}
STORED = [None, "zstd"]


def write(url: str | Path, compression: str | None) -> None:
    with mdsx.Writer(url, COLUMNS, shard_size=5000, compression=compression) as out:
        for number in range(200):
            out.write({"text": f"text {number}", "number": number, "blob": bytes(50) if number % 3 else None})


@pytest.fixture(params=STORED)
def dataset(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    write(tmp_path / "x", request.param)
    return tmp_path / "x"


def shards(dataset: Path) -> list[Path]:
    return sorted(dataset.glob("shard.*"))


def damages(dataset: Path | str, threads: int = 4) -> list[str]:
    return [str(damage) for damage in verify(dataset, num_threads=threads)]


def test_an_undamaged_dataset_is_read_whole_without_damage(dataset: Path) -> None:
    seen: list[Progress] = []
    assert list(verify(dataset, watch=seen.append)) == []
    size = sum(path.stat().st_size for path in shards(dataset))
    assert seen[-1] == Progress(200, size, size, len(shards(dataset)), len(shards(dataset)))


@pytest.mark.parametrize("threads", [1, 4])
def test_damages_come_in_the_order_of_shards(dataset: Path, threads: int) -> None:
    for path in shards(dataset)[::2]:
        path.write_bytes(path.read_bytes()[:-1])
    assert [Path(damage.split(": ")[0]) for damage in damages(dataset, threads)] == shards(dataset)[::2]


def test_any_flipped_bit_of_any_shard_is_found_and_named(tmp_path: Path) -> None:
    write(tmp_path, None)
    path = shards(tmp_path)[1]
    undamaged = path.read_bytes()
    for place in range(0, len(undamaged), 37):
        data = bytearray(undamaged)
        data[place] ^= 1 << place % 8
        path.write_bytes(data)
        found = damages(tmp_path)
        assert found, place
        assert all(damage.startswith(f"{path}: ") for damage in found)


def test_a_damaged_sample_is_named(tmp_path: Path) -> None:
    write(tmp_path, None)
    path = shards(tmp_path)[0]
    data = path.read_bytes()
    path.write_bytes(data.replace(b"text 7", b"text 8"))
    (damage,) = damages(tmp_path)
    assert damage.startswith(f"{path}: sample 7")


def test_every_reader_says_the_same_of_a_damaged_sample(tmp_path: Path) -> None:
    write(tmp_path, None)
    path = shards(tmp_path)[1]
    path.write_bytes(path.read_bytes().replace(b"text 9", b"text 8", 1))
    (problem,) = verify(tmp_path)
    number = int(str(problem.place).partition("(")[2].split()[0])
    errors: list[mdsx.CorruptError] = []
    for read in (
        lambda: mdsx.Dataset(tmp_path)[number],
        lambda: mdsx.Dataset(tmp_path, mmap=False)[number],
        lambda: mdsx.Dataset(tmp_path)[number - 2 : number + 2],
        lambda: list(mdsx.Loader(tmp_path, 1, shuffle=False)),
    ):
        with pytest.raises(mdsx.CorruptError) as caught:
            read()
        errors.append(caught.value)
    expected = (problem.message, problem.place, problem.expected, problem.found)
    assert [(error.message, error.place, error.expected, error.found) for error in errors] == [expected] * 4


def test_a_damaged_frame_of_a_compressed_shard_is_named(tmp_path: Path) -> None:
    write(tmp_path, "zstd")
    path = shards(tmp_path)[0]
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(data)
    (damage,) = damages(tmp_path)
    assert damage.startswith(f"{path}: frame 0")


def test_a_damaged_seek_table_is_named(tmp_path: Path) -> None:
    write(tmp_path, "zstd")
    path = shards(tmp_path)[0]
    path.write_bytes(path.read_bytes()[:-1] + b"!")
    (damage,) = damages(tmp_path)
    assert damage.startswith(f"{path}: seek table")


def test_a_shard_missing_cut_or_swapped_is_damage(dataset: Path) -> None:
    first, second, third, *_ = shards(dataset)
    first.unlink()
    second.write_bytes(second.read_bytes()[:-7])
    third.write_bytes(shards(dataset)[2].read_bytes())
    files = [damage.split(": ")[0] for damage in damages(dataset)]
    assert list(dict.fromkeys(files)) == [str(first), str(second), str(third)]


def test_an_undamaged_shard_of_another_dataset_is_damage(tmp_path: Path) -> None:
    """The size is the same and the shard is undamaged, but the index has another row key."""
    for number in (1, 2):
        with mdsx.Writer(tmp_path / str(number), {"number": "int64"}) as out:
            out.write({"number": number})
    name = "shard.00000.mdsx"
    (tmp_path / "2" / name).write_bytes((tmp_path / "1" / name).read_bytes())
    (damage,) = damages(tmp_path / "2")
    assert damage.startswith(f"{tmp_path}/2/{name}: row key")
    assert "is not the shard that the index names" in damage


def test_a_damaged_index_is_reported_alone(dataset: Path) -> None:
    index = dataset / "index.json"
    index.write_bytes(index.read_bytes().replace(b'"samples":200', b'"samples":201'))
    (damage,) = damages(dataset)
    assert damage.startswith(f"{index}: ")


def test_no_dataset_is_an_error_not_a_damage(tmp_path: Path) -> None:
    with pytest.raises(mdsx.MissingError):
        damages(tmp_path)


def test_storage_that_fails_is_an_error_not_a_damage(dataset: Path) -> None:
    path = shards(dataset)[1]
    path.unlink()
    path.mkdir()
    with pytest.raises(mdsx.TransportError, match="the disk failed"):
        damages(dataset)


@pytest.mark.parametrize("verb", [mdsx.verify, mdsx.repair])
@pytest.mark.parametrize("threads", [0, -1, 2.0, True])
def test_the_number_of_threads_is_an_integer_of_at_least_1(verb: Any, threads: Any, dataset: Path) -> None:
    with pytest.raises(mdsx.UsageError, match="num_threads must be an integer of at least 1"):
        verb(dataset, num_threads=threads)


@pytest.mark.parametrize("compression", STORED)
def test_verify_works_on_s3(s3_url: str, compression: str | None) -> None:
    write(f"{s3_url}/x", compression)
    assert damages(f"{s3_url}/x") == []
    storage = mdsx.storage.open_storage(f"{s3_url}/x")
    names = [entry.key for entry in storage.list("shard.")]
    storage.put(names[0], storage.get(names[0]).data[:-1] + b"!")
    storage.delete(names[1])
    assert [damage.split(": ")[0] for damage in damages(f"{s3_url}/x")] == [f"{s3_url}/x/{name}" for name in names[:2]]


def test_verification_opens_its_input_at_the_call(tmp_path: Path) -> None:
    with pytest.raises(mdsx.MissingError):
        verify(tmp_path / "nothing")


def test_a_verification_is_a_report_of_its_damages(dataset: Path) -> None:
    undamaged = verify(dataset)
    assert (undamaged.ok, len(undamaged), list(undamaged)) == (True, 0, [])
    first, second, *_ = shards(dataset)
    first.unlink()
    second.write_bytes(second.read_bytes()[:-7])
    seen: list[Progress] = []
    found = verify(dataset, watch=seen.append)
    assert not found.ok
    assert len(found) == len(list(found)) >= 2
    assert [damage for progress in seen for damage in progress.problems] == list(found)
    assert repr(found) == f"<Verification of {dataset}: {len(found)} problems in 200 samples in {len(seen)} shards>"
