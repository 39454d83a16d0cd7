"""What a writer stores and refuses."""

from __future__ import annotations

import json
import multiprocessing
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xxhash
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from mdsx.errors import ChangedError, SampleError, TransportError, UsageError
from mdsx.format import ShardView, parse_index
from mdsx.writer import Writer
from tests.format import by_the_book, reference
from tests.writer.jobs import COLUMNS, SHARD_SIZE, contents, sample

TEXT = {"text": "str"}


def write(root: Path, samples: list[dict[str, Any]], columns: dict[str, str] = COLUMNS, **options: Any) -> None:
    with Writer(root, columns, **{"shard_size": SHARD_SIZE, **options}) as out:
        for one in samples:
            out.write(one)


def columns_of(samples: list[dict[str, Any]]) -> dict[str, list[Any]]:
    return {name: [one[name] for one in samples] for name in COLUMNS}


def texts(root: Path) -> list[list[str]]:
    """Return the texts of each shard of a dataset of COLUMNS or TEXT."""
    found = []
    index = parse_index((root / "index.json").read_bytes())
    for number in range(len(index.counts)):
        shard = ShardView.parse((root / index.name(number)).read_bytes())
        place = shard.schema.variable.index(next(k for k, c in enumerate(shard.schema.columns) if c.name == "text"))
        lengths = np.where(shard.rows["lengths"] == 2**32 - 1, 0, shard.rows["lengths"]).astype(int)
        starts = shard.rows["start"].astype(int) + lengths[:, :place].sum(axis=1)
        ends = starts + lengths[:, place]
        found.append([str(shard.heap[a:b], "utf-8") for a, b in zip(starts, ends, strict=True)])
    return found


def test_a_dataset_is_shards_and_their_index(tmp_path: Path) -> None:
    samples = [sample(number) for number in range(100)]
    write(tmp_path, samples, metadata={"made by": "tests"})
    index = parse_index((tmp_path / "index.json").read_bytes())
    names = [f"shard.{number:05d}.mdsx" for number in range(len(index.counts))]
    assert sorted(contents(tmp_path)) == ["index.json", *names]
    assert [index.name(number) for number in range(len(names))] == names
    assert index.samples == 100
    assert index.metadata == {"made by": "tests"}
    assert index.compression is None
    for number, name in enumerate(names):
        data = (tmp_path / name).read_bytes()
        assert index.hash(number) == xxhash.xxh3_128_hexdigest(data)
        assert (index.sizes[number], index.counts[number]) == (len(data), ShardView.parse(data).samples)
    assert [text for shard in texts(tmp_path) for text in shard] == [one["text"] for one in samples]


def test_shards_follow_the_specification(tmp_path: Path) -> None:
    """Ten samples of known bytes, in shards of three."""
    write(tmp_path, [{"text": "x" * 100} for _ in range(10)], TEXT, shard_size=128 + 128 + 3 * 100)
    found = [(tmp_path / f"shard.{number:05d}.mdsx").read_bytes() for number in range(4)]
    assert found == [by_the_book.shard(TEXT, [{"text": b"x" * 100}] * count) for count in (3, 3, 3, 1)]


def test_a_compressed_dataset_holds_the_same_shards(tmp_path: Path) -> None:
    samples = [sample(number) for number in range(100)]
    write(tmp_path / "raw", samples)
    for compression in ("zstd", "zstd:1", "zstd:19"):
        write(tmp_path / compression, samples, compression=compression)
        raw = parse_index((tmp_path / "raw" / "index.json").read_bytes())
        index = parse_index((tmp_path / compression / "index.json").read_bytes())
        assert index.compression == "zstd"
        assert index.fingerprint == raw.fingerprint
        for number in range(len(raw.counts)):
            stored = (tmp_path / compression / f"shard.{number:05d}.mdsx.zst").read_bytes()
            plain = (tmp_path / "raw" / f"shard.{number:05d}.mdsx").read_bytes()
            assert zstandard.ZstdDecompressor().decompressobj().decompress(stored) == plain
            assert index.raw_hash(number) == raw.hash(number)
            assert index.hash(number) == xxhash.xxh3_128_hexdigest(stored)


@settings(deadline=None, max_examples=15)
@given(cuts=st.lists(st.tuples(st.integers(0, 60), st.booleans()), max_size=5), shard_size=st.integers(1, 3000))
def test_write_and_write_batch_make_the_same_bytes(
    tmp_path_factory: pytest.TempPathFactory, cuts: list[tuple[int, bool]], shard_size: int
) -> None:
    samples = [sample(number) for number in range(60)]
    root = tmp_path_factory.mktemp("same")
    write(root / "one by one", samples, shard_size=shard_size)
    with Writer(root / "mixed", COLUMNS, shard_size=shard_size) as out:
        begin = 0
        for end, batch in [*sorted(cuts), (60, True)]:
            if batch:
                out.write_batch(columns_of(samples[begin:end]))
            else:
                for one in samples[begin:end]:
                    out.write(one)
            begin = end
            assert out.samples == end
    assert contents(root / "mixed") == contents(root / "one by one")


def test_samples_counts_written_samples(tmp_path: Path) -> None:
    with Writer(tmp_path, TEXT) as out:
        assert out.samples == 0
        out.write({"text": "a"})
        assert out.samples == 1
        out.write_batch({"text": ["b", "c"]})
        assert out.samples == 3
        out.write_batch({"text": []})
        assert out.samples == 3


def test_no_samples_are_a_dataset_without_shards(tmp_path: Path) -> None:
    write(tmp_path, [])
    assert list(contents(tmp_path)) == ["index.json"]
    assert parse_index((tmp_path / "index.json").read_bytes()).samples == 0


def test_a_sample_larger_than_a_shard_gets_its_own(tmp_path: Path) -> None:
    write(tmp_path, [{"text": "x" * length} for length in (10, 5000, 10, 10)], TEXT)
    assert [[len(text) for text in shard] for shard in texts(tmp_path)] == [[10], [5000], [10, 10]]
    write(tmp_path / "tiny", [{"text": "a"}, {"text": "b"}], TEXT, shard_size=1)
    assert texts(tmp_path / "tiny") == [["a"], ["b"]]


def test_a_refused_sample_leaves_the_writer_usable(tmp_path: Path) -> None:
    with Writer(tmp_path, {"a": "int8", "text": "str"}) as out:
        out.write({"a": 1, "text": "one"})
        for bad in ({"a": 300, "text": "x"}, {"a": 1}, {"a": 1, "text": "x", "b": 2}, {"a": 1, "text": None}):
            with pytest.raises(SampleError):
                out.write(bad)
        with pytest.raises(SampleError, match="sample 2 of the batch, column 'a'"):
            out.write_batch({"a": [1, 2, 300], "text": ["x", "y", "z"]})
        assert out.samples == 1
        out.write({"a": 2, "text": "two"})
    assert texts(tmp_path) == [["one", "two"]]


def test_arguments_may_change_after_the_call(tmp_path: Path) -> None:
    tokens = np.zeros(4, np.uint16)
    with Writer(tmp_path, {"t": "uint16[4]"}) as out:
        for number in range(3):
            tokens[:] = number
            out.write({"t": tokens})
        batch = np.full((2, 4), 3, np.uint16)
        out.write_batch({"t": batch})
        batch[:] = 9
    rows = ShardView.parse((tmp_path / "shard.00000.mdsx").read_bytes()).rows["column0"]
    assert rows[:, 0].tolist() == [0, 1, 2, 3, 3]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
def test_an_exception_keeps_shards_but_writes_no_index(tmp_path: Path, error: type[BaseException]) -> None:
    with pytest.raises(error), Writer(tmp_path, TEXT, shard_size=400) as out:  # noqa: PT012
        for _ in range(100):
            out.write({"text": "x"})
        raise error
    assert not (tmp_path / "index.json").exists()
    assert len(list(tmp_path.glob("shard.*"))) == 9  # ten samples each; sample 101 would have closed the tenth
    with Writer(tmp_path, TEXT, shard_size=400, resume=True) as out:
        assert out.samples == 90


def test_a_writer_is_used_in_one_with(tmp_path: Path) -> None:
    out = Writer(tmp_path, TEXT)
    with pytest.raises(UsageError, match="the writer is not open"):
        out.write({"text": "a"})
    with out:
        out.write({"text": "a"})
    with pytest.raises(UsageError, match="the writer is closed"):
        out.write({"text": "a"})
    with pytest.raises(UsageError, match="the writer is closed"):
        out.write_batch({"text": ["a"]})
    with pytest.raises(UsageError, match="used only once"), out:
        pass


def test_no_thread_outlives_its_writer(tmp_path: Path) -> None:
    before = set(threading.enumerate())
    write(tmp_path / "a", [sample(number) for number in range(100)])
    with pytest.raises(ZeroDivisionError), Writer(tmp_path / "b", COLUMNS, shard_size=SHARD_SIZE) as out:  # noqa: PT012
        out.write_batch(columns_of([sample(number) for number in range(100)]))
        raise ZeroDivisionError
    assert set(threading.enumerate()) <= before  # threads of tests before this one may have ended


def test_a_failed_upload_raises_at_the_next_call(tmp_path: Path) -> None:
    (tmp_path / "full" / "shard.00002.mdsx" / "x").mkdir(parents=True)  # no file can be put there
    with (  # noqa: PT012
        pytest.raises(TransportError, match=r"shard\.00002\.mdsx"),
        Writer(tmp_path / "full", TEXT, shard_size=400) as out,
    ):
        while True:  # ends as soon as the failure is known
            out.write_batch({"text": ["x" * 100] * 2})
    assert not (tmp_path / "full" / "index.json").exists()

    (tmp_path / "late" / "shard.00000.mdsx" / "x").mkdir(parents=True)
    with pytest.raises(TransportError), Writer(tmp_path / "late", TEXT) as out:
        out.write({"text": "x"})
    assert not (tmp_path / "late" / "index.json").exists()
    assert (tmp_path / "late" / "_mdsx" / "writer.json").exists()


def test_an_upload_that_failed_cannot_be_ignored(tmp_path: Path) -> None:
    (tmp_path / "shard.00000.mdsx" / "x").mkdir(parents=True)
    with pytest.raises(TransportError), Writer(tmp_path, TEXT, shard_size=200) as out:  # noqa: PT012
        failed = 0
        while failed < 3:
            try:
                out.write_batch({"text": ["x" * 100] * 2})
            except TransportError:
                failed += 1


def test_memory_is_bounded_by_the_shards_in_flight(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If storage does not answer, the writer stops after four shards."""
    gate, begun = threading.Event(), threading.Semaphore(0)
    fsync = os.fsync

    def wait(descriptor: int) -> None:
        begun.release()
        assert gate.wait(60)
        fsync(descriptor)

    out = Writer(tmp_path, TEXT, shard_size=200)
    written: list[int] = []

    def write_all() -> None:
        with out:
            for number in range(40):
                out.write_batch({"text": ["x" * 100]})
                written.append(number)

    monkeypatch.setattr(os, "fsync", wait)
    thread = threading.Thread(target=write_all)
    thread.start()
    for _ in range(4):
        assert begun.acquire(timeout=60)
    assert not begun.acquire(timeout=0.2)
    assert len(written) <= 6
    gate.set()
    thread.join()
    assert len(written) == 40
    assert (tmp_path / "index.json").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"columns": {}}, "there is no column"),
        ({"columns": {"a": "int63"}}, "unknown column type 'int63'"),
        ({"shard_size": 0}, "shard_size must be at least 1 byte"),
        ({"shard_size": "many"}, "shard_size is not a size"),
        ({"compression": "gzip"}, "unknown compression"),
        ({"compression": "zstd:23"}, "unknown compression"),
        ({"compression": 3}, "unknown compression"),
        ({"metadata": {"a": float("nan")}}, "metadata cannot be written as JSON"),
        ({"metadata": {"a": "x" * 2**20}}, "metadata is too large"),
        ({"url": "ftp://host/x"}, "there is no storage for ftp://"),
    ],
)
def test_invalid_options_raise_before_any_write(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Writer(**{"url": tmp_path / "new", "columns": TEXT, **options})
    assert not (tmp_path / "new").exists()


def test_an_occupied_place_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "finished", [sample(1)])
    with pytest.raises(UsageError, match=r"there is a dataset already; write to another URL, .*resume=True"):
        Writer(tmp_path / "finished", COLUMNS)

    with pytest.raises(ZeroDivisionError), Writer(tmp_path / "unfinished", COLUMNS):
        raise ZeroDivisionError
    with pytest.raises(UsageError, match=r"there is an unfinished dataset already.*resume=True"):
        Writer(tmp_path / "unfinished", COLUMNS)

    (tmp_path / "shards").mkdir()
    (tmp_path / "shards" / "shard.00007.mdsx.zst").write_bytes(b"")
    with pytest.raises(UsageError, match="there is an unfinished dataset already"):
        Writer(tmp_path / "shards", COLUMNS)

    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes.txt").write_bytes(b"")
    write(tmp_path / "other", [sample(1)])


def test_metadata_is_copied_at_construction(tmp_path: Path) -> None:
    metadata: dict[str, Any] = {"a": []}
    with Writer(tmp_path, TEXT, metadata=metadata):
        metadata["a"].append(object())
    assert json.loads((tmp_path / "index.json").read_bytes())["metadata"] == {"a": []}


def test_the_fingerprint_follows_from_the_shards(tmp_path: Path) -> None:
    write(tmp_path, [sample(number) for number in range(50)])
    index = json.loads((tmp_path / "index.json").read_bytes())
    assert index["fingerprint"] == reference.fingerprint(index)


def test_a_forked_process_cannot_write_into_its_parents_dataset(tmp_path: Path) -> None:
    def try_it(out: Writer) -> None:
        try:
            with pytest.raises(UsageError, match="the writer belongs to another process"):
                out.write({"text": "b"})
            out.__exit__(None, None, None)  # as if a fork left the `with`
        except BaseException:
            os._exit(1)

    with Writer(tmp_path, TEXT) as out:
        out.write({"text": "a"})
        child = multiprocessing.get_context("fork").Process(target=try_it, args=(out,))
        child.start()
        child.join()
        assert child.exitcode == 0
        assert not (tmp_path / "index.json").exists()
    assert texts(tmp_path) == [["a"]]


def test_two_writers_in_one_place_raise(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="another writer has taken over"), Writer(tmp_path, TEXT) as first:  # noqa: PT012
        first.write({"text": "a"})
        with Writer(tmp_path, TEXT, resume=True) as second:
            second.write({"text": "b"})
    assert texts(tmp_path) == [["b"]]


def test_a_replaced_writer_publishes_nothing(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="another writer has taken over"), Writer(tmp_path, TEXT):
        second = Writer(tmp_path, TEXT, resume=True)
    assert not (tmp_path / "index.json").exists()
    with second:
        second.write({"text": "b"})
    assert texts(tmp_path) == [["b"]]


@pytest.mark.parametrize("damage", [Path.unlink, lambda path: path.write_bytes(b"another")])
def test_a_removed_shard_raises_before_the_index(tmp_path: Path, damage: Callable[[Path], object]) -> None:
    with (  # noqa: PT012
        pytest.raises(ChangedError, match=r"shard\.00000\.mdsx.*resume"),
        Writer(tmp_path, TEXT, shard_size=300) as out,
    ):
        out.write_batch({"text": ["x" * 100] * 20})
        while not (tmp_path / "shard.00003.mdsx").exists() or not (tmp_path / "shard.00000.mdsx").exists():
            time.sleep(0.001)
        damage(tmp_path / "shard.00000.mdsx")
    assert not (tmp_path / "index.json").exists()


@pytest.mark.parametrize("metadata", [{1: 2}, {"a": [{True: 1}]}, {"a": {("b",): 1}}])
def test_metadata_with_other_keys_than_str_is_refused(tmp_path: Path, metadata: dict[Any, Any]) -> None:
    with pytest.raises(UsageError, match="metadata"):
        Writer(tmp_path / "x", TEXT, metadata=metadata)
    assert not (tmp_path / "x").exists()
