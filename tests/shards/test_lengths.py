"""The lengths of samples: what they are, where they come from, and what is read for them."""

from __future__ import annotations

import gc
import pickle
import shutil
import time
from collections.abc import Callable, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mdsx
from mdsx.base import warn
from mdsx.datasets import excerpt_of
from mdsx.format import LengthTrailer, filenames
from mdsx.shards import Lengths, View, length_file, length_table, lengths_of
from mdsx.shards import shards as shards_module
from mdsx.storage.cache import clear, contents_of
from mdsx.testing import far_disk
from mdsx.testing.far_disk import SCHEME, FarDisk, Request
from tests.fork_server import call_all
from tests.forks import forked
from tools.fault_proxy import Proxy

COLUMNS = {
    "id": "int64",
    "tokens": "uint16[*]",
    "text": "str?",
    "small": "uint8",
    "pair": "float32[2]",
    "maybe": "uint16[3]?",
    "matrix": "float32[*,2]",
    "words": "str[*]",
    "score": "float32",
}


def sample(number: int) -> dict[str, Any]:
    return {
        "id": number,
        "tokens": np.arange(number * 7 % 11, dtype=np.uint16),
        "text": None if number % 5 == 0 else "é" * (number % 4),
        "small": number % 200,
        "pair": [0.5, number],
        "maybe": None if number % 2 else [1, 2, 3],
        "matrix": np.zeros((number % 3, 2), np.float32),
        "words": ["a"] * (number % 3),
        "score": 0.5,
    }


EXPECTED: dict[str, Callable[[int], int]] = {
    "id": lambda number: number,
    "tokens": lambda number: number * 7 % 11,
    "text": lambda number: 0 if number % 5 == 0 else 2 * (number % 4),
    "small": lambda number: number % 200,
    "pair": lambda number: 2,
    "maybe": lambda number: 0 if number % 2 else 3,
}


def write(url: Path, count: int = 500, **options: Any) -> mdsx.Dataset:
    with mdsx.Writer(url, COLUMNS, shard_size=10_000, **options) as out:
        for number in range(count):
            out.write(sample(number))
    return mdsx.Dataset(url, cache=url.parent / "cache")


@pytest.fixture(scope="module", params=[None, "zstd"])
def data(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> mdsx.Dataset:
    return write(tmp_path_factory.mktemp("lengths") / "data", compression=request.param)


def all_lengths(data: mdsx.Dataset, length: Any) -> list[int]:
    view = View([excerpt_of(data)])
    shards = np.repeat(np.arange(len(view.counts)), view.counts)
    samples = np.concatenate([np.zeros(0, np.int64), *(np.arange(count) for count in view.counts)])
    found: list[int] = lengths_of(view, length).of(shards, view.stored(shards, samples)).tolist()
    return found


@pytest.mark.parametrize("column", EXPECTED)
def test_each_rule_gives_lengths(data: mdsx.Dataset, column: str) -> None:
    assert all_lengths(data, column) == [EXPECTED[column](number) for number in range(len(data))]


@pytest.mark.parametrize("column", ["matrix", "words", "score", "absent"])
def test_a_column_without_lengths_is_refused(data: mdsx.Dataset, column: str) -> None:
    with pytest.raises(mdsx.UsageError, match="id, tokens, text, small, pair, maybe"):
        lengths_of(View([excerpt_of(data)]), column)


def test_a_number_that_cannot_be_a_length_is_refused(tmp_path: Path) -> None:
    with mdsx.Writer(tmp_path / "data", {"n": "int64"}) as out:
        out.write_batch({"n": [1, 2, -3]})
    with pytest.raises(mdsx.UsageError, match="sample 2"):
        all_lengths(mdsx.Dataset(tmp_path / "data"), "n")


VARIED = {"tokens": "uint16[*]", "text": "str", "maybe": "float32[6]?", "n": "uint16", "pair": "int8[2]"}


def varied(url: Path, lengths: Sequence[str] = ()) -> mdsx.Dataset:
    """20 samples with 4 + 2 * 5 and 3 heap bytes, and 24 of every second one."""
    with mdsx.Writer(url, VARIED, shard_size=300, compression="zstd", lengths=lengths) as out:
        for number in range(20):
            maybe = None if number % 2 else np.zeros(6, np.float32)
            out.write({"tokens": [*range(5)], "text": "abc", "maybe": maybe, "n": 3, "pair": [1, 2]})
    return mdsx.Dataset(url)


def means(data: mdsx.Dataset) -> dict[str, Fraction | None]:
    return {name: lengths_of(View([excerpt_of(data)]), name).mean for name in VARIED}


def test_the_mean_follows_from_the_index_alone(tmp_path: Path) -> None:
    heap = Fraction(20 * 17 + 10 * 24, 20)
    estimates = {"tokens": heap / 2, "text": heap, "maybe": heap / 4, "n": None, "pair": 2}
    without = varied(tmp_path / "without")
    assert means(without) == estimates
    for name in VARIED:
        mdsx.write_lengths(tmp_path / "without", name)
    assert means(mdsx.Dataset(tmp_path / "without")) == estimates
    sums = varied(tmp_path / "with", ["tokens", "maybe", "n"])
    assert means(sums) == estimates | {"tokens": 5, "maybe": 3, "n": 3}
    assert means(sums.select_share(0.0, 0.1)) == means(sums)
    assert sums.fingerprint == without.fingerprint
    shutil.rmtree(tmp_path / "with" / "_lengths")
    assert means(mdsx.Dataset(tmp_path / "with")) == means(sums)


def test_a_mixture_has_the_sums_of_all_components(tmp_path: Path) -> None:
    first, other = varied(tmp_path / "a", ["tokens", "n"]), varied(tmp_path / "b").select(0, 3)
    view = View([excerpt_of(first), excerpt_of(other)])
    assert lengths_of(view, "tokens").mean == (5 + Fraction(20 * 17 + 10 * 24, 40)) / 2
    assert lengths_of(view, "n").mean is None
    joined = mdsx.zip(first.select_columns(["text"]), varied(tmp_path / "c").select_columns(["tokens"]))
    assert lengths_of(View([excerpt_of(joined)]), "tokens").mean == Fraction(20 * 17 + 10 * 24, 40)


def test_a_given_array_has_a_length_for_each_stored_sample(data: mdsx.Dataset) -> None:
    given = np.random.default_rng(1).integers(0, 2**32, len(data))
    assert all_lengths(data, given) == given.tolist()
    found = lengths_of(View([excerpt_of(data.select(100, 300))]), given)
    assert found.mean == Fraction(sum(given.tolist()), len(given))
    assert found.identity == lengths_of(View([excerpt_of(data)]), given.tolist()).identity
    bad: list[Any] = [given[1:], given.astype(float), given - 2**32, "absent", [given.tolist()]]
    for wrong in bad:
        with pytest.raises(mdsx.UsageError):
            lengths_of(View([excerpt_of(data)]), wrong)


def test_selections_mixtures_and_new_names_keep_the_stored_identity(tmp_path: Path, data: mdsx.Dataset) -> None:
    other = write(tmp_path / "other", 50).select_columns({"size": "tokens"})
    chosen = data.select_share(0.2, 0.7).select_columns({"size": "tokens"})
    view = View([excerpt_of(chosen), excerpt_of(other)])
    lengths = lengths_of(view, "size")
    fields = {"column": "tokens", "rule": "values"}
    assert lengths.identity == {
        "each": [{"fingerprint": data.fingerprint, **fields}, {"fingerprint": other.fingerprint, **fields}]
    }
    shards = np.repeat(np.arange(len(view.counts)), view.counts)
    samples = view.stored(shards, np.concatenate([np.arange(count) for count in view.counts]))
    shuffled = np.random.default_rng(2).permutation(len(shards))
    found = np.empty(len(shards), np.int64)
    found[shuffled] = lengths.of(shards[shuffled], samples[shuffled])
    assert found.tolist() == [len(each["size"]) for part in (chosen, other) for each in part]


# --- what is read, and where it is kept


@pytest.fixture
def far(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A dataset that is read like remote storage, with a cache of its own."""
    monkeypatch.setattr(shards_module, "open_storage", far_disk.open_far)
    monkeypatch.setenv("MDSX_CACHE", str(tmp_path / "cache"))
    write(tmp_path / "data")
    FarDisk.requests.clear()
    return tmp_path


def open_far(folder: Path) -> mdsx.Dataset:
    return mdsx.Dataset(f"{SCHEME}{folder / 'data'}")


def requests() -> list[Request]:
    found = [request for request in FarDisk.requests if request.key != filenames.INDEX]
    FarDisk.requests.clear()
    return found


def test_only_the_rows_of_the_shards_are_read(far: Path) -> None:
    data, expected = open_far(far), [EXPECTED["tokens"](number) for number in range(500)]
    assert all_lengths(data, "tokens") == expected
    index = excerpt_of(data).shards.index
    rows, first = index.schema.row_size * index.counts, index.schema.rows_offset
    (absent, *asked) = requests()
    assert absent.key == "_lengths/tokens.u32"
    ranges = {index.name(shard): (first, first + size) for shard, size in enumerate(rows.tolist())}
    assert {each.key: (each.start, each.stop) for each in asked} == ranges
    assert len(asked) == len(index.counts)
    assert all_lengths(open_far(far), "tokens") == expected  # from the cache
    assert not requests()


def test_with_a_file_only_its_trailer_and_ranges_of_it_are_read(far: Path) -> None:
    found = mdsx.write_lengths(far / "data", "tokens")
    assert (found.samples, found.rule) == (500, "values")
    data = open_far(far)
    index = excerpt_of(data).shards.index
    stops = np.cumsum(index.counts)
    lengths = lengths_of(View([excerpt_of(data)]), "tokens")
    assert lengths.of(np.array([2, 2]), np.array([1, 0])).tolist() == [
        EXPECTED["tokens"](int(stops[1]) + number) for number in (1, 0)
    ]
    key = "_lengths/tokens.u32"
    trailer, lengths_of_two = requests()
    assert (trailer.key, trailer.start) == (key, 2000)
    assert lengths_of_two == Request(key, 4 * int(stops[1]), 4 * int(stops[2]))
    assert all_lengths(data, "tokens") == [EXPECTED["tokens"](number) for number in range(500)]
    assert {request.key for request in requests()} == {key}


def test_the_lengths_of_a_dataset_that_grew_are_not_read_by_a_snapshot(far: Path) -> None:
    """Where a trailer of its own would be, the file has lengths of appended samples: any number of them."""
    fingerprint = mdsx.Dataset(far / "data").fingerprint
    write(far / "data" / "part-00000", 100)
    mdsx.append(far / "data", "part-00000")
    mdsx.write_lengths(far / "data", "tokens")
    FarDisk.requests.clear()
    data = mdsx.Dataset(f"{SCHEME}{far / 'data'}", snapshot=fingerprint)
    assert all_lengths(data, "tokens") == [EXPECTED["tokens"](number) for number in range(500)]
    asked = [request for request in requests() if request.key == "_lengths/tokens.u32"]
    assert asked
    assert all(request.stop is not None and request.stop - request.start < 2**20 for request in asked)


@pytest.mark.parametrize(("gap", "most", "expected"), [(10**6, 10**6, 1), (0, 10**6, 3), (10**6, 1, 4)])
def test_requests_join_near_shards_up_to_a_size(
    far: Path, monkeypatch: pytest.MonkeyPatch, gap: int, most: int, expected: int
) -> None:
    mdsx.write_lengths(far / "data", "tokens")
    monkeypatch.setattr(length_file, "_GAP", gap)
    monkeypatch.setattr(length_file, "_MOST", most)
    view = View([excerpt_of(open_far(far))])
    shards, zeros = np.array([5, 0, 2, 3]), np.zeros(4, np.int64)
    firsts = np.cumsum(view.counts) - view.counts
    found = lengths_of(view, "tokens").of(shards, zeros)
    assert found.tolist() == [EXPECTED["tokens"](int(firsts[shard])) for shard in shards]
    assert len(requests()[1:]) == expected


@pytest.mark.parametrize("compression", [None, "zstd"])
def test_few_ranges_are_requested_of_s3(proxy: Proxy, s3_url: str, tmp_path: Path, compression: str | None) -> None:
    for folder, lengths in (("with", ["tokens"]), ("without", [])):
        with mdsx.Writer(
            f"{s3_url}/{folder}", COLUMNS, shard_size=10_000, compression=compression, lengths=lengths
        ) as out:
            for number in range(500):
                out.write(sample(number))
        data = mdsx.Dataset(f"{s3_url}/{folder}", cache=tmp_path / folder)
        proxy.asked.clear()
        assert all_lengths(data, "tokens") == [EXPECTED["tokens"](number) for number in range(500)]
        index = excerpt_of(data).shards.index
        trailer = f"bytes=2000-{1999 + LengthTrailer.most_bytes(len(index.counts))}"
        if lengths:
            assert [asked.range for asked in proxy.asked] == [trailer, "bytes=0-1999"]
        elif compression:  # the table of frames, and the only frame
            assert len(proxy.asked) == 1 + 2 * len(index.counts)
        else:
            first = index.schema.rows_offset
            rows = [f"bytes={first}-{first + count * index.schema.row_size - 1}" for count in index.counts.tolist()]
            assert sorted(asked.range for asked in proxy.asked) == sorted([trailer, *rows])


def damage(path: Path, at: int) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ 1]))


@pytest.mark.parametrize("at", [1, 1999, 2000, 2050, -5])
def test_a_damaged_file_of_lengths_is_not_used(far: Path, at: int) -> None:
    file = far / "data" / "_lengths" / "tokens.u32"
    mdsx.write_lengths(far / "data", "tokens")
    damage(file, at if at >= 0 else file.stat().st_size + at)
    for data in (open_far(far), mdsx.Dataset(far / "data")):
        warn.issued.clear()
        with pytest.warns(UserWarning, match="mdsx lengths .*data --column tokens"):
            assert all_lengths(data, "tokens") == [EXPECTED["tokens"](number) for number in range(500)]


@pytest.mark.parametrize("count", [400, 500, 600])
def test_the_lengths_of_another_dataset_are_not_used(far: Path, count: int) -> None:
    other = far / "other"
    with mdsx.Writer(other, {"tokens": "uint16[*]"}, lengths=["tokens"], shard_size=10_000) as out:
        for _ in range(count):
            out.write({"tokens": [1]})
    shutil.copytree(other / "_lengths", far / "data" / "_lengths")
    with pytest.warns(UserWarning, match="--column tokens"):
        assert all_lengths(open_far(far), "tokens") == [EXPECTED["tokens"](number) for number in range(500)]


def test_damage_in_the_cache_is_found(far: Path) -> None:
    expected = [EXPECTED["tokens"](number) for number in range(500)]
    assert all_lengths(open_far(far), "tokens") == expected
    (table,) = (far / "cache").rglob("*.u32")
    marks = 8 * len(excerpt_of(open_far(far)).shards.index.counts)
    assert table.stat().st_size == marks + 2000
    for at in (0, marks + 7, marks + 1999):
        damage(table, at)
    requests()
    assert all_lengths(open_far(far), "tokens") == expected
    assert len({request.key for request in requests() if request.key.startswith("shard.")}) >= 2
    assert all_lengths(open_far(far), "tokens") == expected
    assert not requests()


def test_the_cache_counts_keeps_and_removes_lengths(far: Path) -> None:
    data = open_far(far)
    assert all_lengths(data, "tokens")
    cache = far / "cache"
    (table,) = cache.rglob("*.u32")
    (dataset,) = contents_of(cache, time.time()).datasets
    assert (dataset.shards, dataset.size, dataset.held) == (0, table.stat().st_size, 0)
    held = lengths_of(View([excerpt_of(data)]), "tokens")
    zero = np.zeros(1, np.int64)
    held.of(zero, zero)
    assert clear(cache).held.size == dataset.size
    assert held.of(zero, zero).tolist() == [EXPECTED["tokens"](0)]
    del held
    gc.collect()
    assert clear(cache).removed.size == dataset.size
    assert not table.exists()
    assert all_lengths(data, "tokens")


def test_a_full_cache_leaves_lengths_in_memory(far: Path) -> None:
    data = mdsx.Dataset(f"{SCHEME}{far / 'data'}", cache=mdsx.Cache(far / "cache", limit=11_000))
    lengths = lengths_of(View([excerpt_of(data)]), "tokens")
    shards: Any = excerpt_of(data).shards
    held = [shards.cache.fetch(shards.key(0), lambda write: shards._state.stored.download(0, write))]
    assert lengths.of(np.array([3]), np.array([0])).tolist() == [EXPECTED["tokens"](int(data._first[3]))]
    assert held
    assert not list((far / "cache").rglob("*.u32"))


@pytest.mark.parametrize("made_again", [False, True])
def test_a_removed_cache_leaves_lengths_in_memory(far: Path, made_again: bool) -> None:
    """Even if another reader makes a file of lengths again, which has others than the one that this reader holds."""
    view = View([excerpt_of(open_far(far))])
    lengths, first = lengths_of(view, "tokens"), np.zeros(len(view.counts), np.int64)
    shards = np.arange(len(view.counts))
    expected = [EXPECTED["tokens"](int(number)) for number in np.cumsum(view.counts) - view.counts]
    assert lengths.of(shards[:2], first[:2]).tolist() == expected[:2]
    shutil.rmtree(far / "cache")
    if made_again:
        other = View([excerpt_of(open_far(far))])
        assert lengths_of(other, "tokens").of(shards[-2:], first[-2:]).tolist() == expected[-2:]
    assert lengths.of(shards, first).tolist() == expected
    assert (far / "cache").exists() == made_again


def test_a_file_of_lengths_that_is_removed_is_no_loss(tmp_path: Path) -> None:
    data = write(tmp_path / "data", lengths=["tokens"])
    view, zero = View([excerpt_of(data)]), np.zeros(1, np.int64)
    lengths = lengths_of(view, "tokens")
    assert lengths.of(zero, zero).tolist() == [EXPECTED["tokens"](0)]  # it is mapped
    (tmp_path / "data" / "_lengths" / "tokens.u32").unlink()
    shard = np.array([2])
    assert lengths.of(shard, zero).tolist() == [EXPECTED["tokens"](int(view.counts[:2].sum()))]
    again = lengths_of(view, "tokens")
    assert again.of(shard, zero).tolist() == lengths.of(shard, zero).tolist()


def test_a_file_of_lengths_on_a_network_file_system_is_not_mapped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "data", lengths=["tokens"])
    beside, mapped = tmp_path / "beside", list[Path]()
    beside.mkdir()
    for name in ("index.json", "_lengths"):
        shutil.move(tmp_path / "data" / name, beside)
    monkeypatch.setattr(shards_module, "network_file_system", beside.__eq__)
    monkeypatch.setattr(length_table, "map_whole", mapped.append)
    data = mdsx.Dataset(tmp_path / "data", index=beside)
    assert excerpt_of(data).shards.mapped_in_place
    assert all_lengths(data, "tokens") == [EXPECTED["tokens"](number) for number in range(500)]
    assert not mapped


def read_all(folder: Path, seed: int) -> list[int]:
    """Read the lengths of all samples in many calls, in an order of this process."""
    shards_module.open_storage = far_disk.open_far  # type: ignore[attr-defined]
    data = open_far(folder)
    view = View([excerpt_of(data)])
    shards = np.repeat(np.arange(len(view.counts)), view.counts)
    samples = np.concatenate([np.arange(count) for count in view.counts])
    found, lengths = np.empty(len(shards), np.int64), lengths_of(view, "tokens")
    for some in np.array_split(np.random.default_rng(seed).permutation(len(shards)), 20):
        found[some] = lengths.of(shards[some], samples[some])
    result: list[int] = found.tolist()
    return result


def test_processes_share_the_lengths_in_the_cache(far: Path) -> None:
    expected = [EXPECTED["tokens"](number) for number in range(500)]
    assert call_all(read_all, [(far, seed) for seed in range(3)]) == [expected] * 3
    requests()
    assert all_lengths(open_far(far), "tokens") == expected
    assert not requests()


def test_lengths_are_pickled_and_forked(far: Path) -> None:
    expected = [EXPECTED["tokens"](number) for number in range(500)]
    view = View([excerpt_of(open_far(far))])
    shards = np.repeat(np.arange(len(view.counts)), view.counts)
    samples = np.concatenate([np.arange(count) for count in view.counts])
    lengths = lengths_of(view, "tokens")
    assert lengths.of(shards, samples).tolist() == expected
    again: Lengths = pickle.loads(pickle.dumps(lengths))
    assert again.of(shards, samples).tolist() == expected
    assert forked(lambda: lengths.of(shards, samples).tolist()) == expected


def test_damaged_rows_are_found(tmp_path: Path) -> None:
    data = write(tmp_path / "data")
    index = excerpt_of(data).shards.index
    path, size = tmp_path / "data" / index.name(1), index.schema.row_size
    place = index.schema.rows_offset + 3 * size + 16
    damage(path, place)
    with pytest.raises(mdsx.CorruptError, match=r"shard\.00001\.mdsx.*sample 4"):
        all_lengths(data, "tokens")


def test_lengths_do_not_come_from_a_damaged_shard_in_the_cache(tmp_path: Path) -> None:
    data = write(tmp_path / "data", compression="zstd")
    schema = excerpt_of(data).shards.index.schema
    assert len(list(data)) == 500
    for path in (tmp_path / "cache").glob("*/*.mdsx"):
        damage(path, schema.rows_offset + 3 * schema.row_size + 40)  # one bit of an id
    for _ in range(2):  # nor do they stay in the cache
        assert all_lengths(mdsx.Dataset(tmp_path / "data", cache=tmp_path / "cache"), "id") == list(range(500))


def test_the_rows_of_another_shard_are_refused(far: Path) -> None:
    path = far / "data" / "shard.00001.mdsx"
    shard, index = bytearray(path.read_bytes()), excerpt_of(open_far(far)).shards.index
    first, stop = index.schema.rows_offset, index.schema.rows_offset + int(index.counts[1]) * index.schema.row_size
    rows = np.frombuffer(shard, np.uint64, (stop - first) // 8, first).reshape(-1, index.schema.row_size // 8)
    rows[:, 0] ^= 1  # as in a shard with another row key
    path.write_bytes(shard)
    for data in (open_far(far), mdsx.Dataset(far / "data")):
        with pytest.raises(mdsx.CorruptError, match="row key"):
            all_lengths(data, "tokens")
