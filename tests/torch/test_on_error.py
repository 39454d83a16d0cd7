"""`on_error="skip"`: skips, logs and counts exactly the samples that fail. Everything else is unchanged."""

from __future__ import annotations

import re
import shutil
from ast import literal_eval
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
import torch

import mdsx
from mdsx.torch import StreamingDataLoader, StreamingDataset
from tools.fault_proxy import Proxy, status
from tools.servers.s3 import S3Server

N, BATCH = 203, 10
BAD = frozenset({3, 50, 51, 52, 111, 202})
SKIP: dict[str, Any] = {"on_error": "skip", "drop_last": False}


def write(folder: Path, count: int = N, **options: Any) -> None:
    columns = {"id": "int64", "tokens": "uint16[4]", "text": "str", "maybe": "json?"}
    with mdsx.Writer(folder, columns, shard_size=options.pop("shard_size", 1500), **options) as out:
        for number in range(count):
            maybe = None if number % 2 else {"n": number}
            out.write({"id": number, "tokens": np.full(4, number), "text": f"sample {number:05}", "maybe": maybe})


def damage(folder: Path, *numbers: int) -> None:
    """Flip a bit in a value of each sample."""
    for number in numbers:
        (path,) = (path for path in folder.glob("shard.*") if b"sample %05d" % number in path.read_bytes())
        path.write_bytes(path.read_bytes().replace(b"sample %05d" % number, b"sample!%05d" % number))


@pytest.fixture(scope="module")
def undamaged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset of some twenty shards."""
    folder: Path = tmp_path_factory.mktemp("undamaged") / "data"
    write(folder)
    assert len(list(folder.glob("shard.*"))) > 9
    return folder


@pytest.fixture
def damaged(undamaged: Path, tmp_path: Path) -> Path:
    """The same dataset with damaged samples."""
    shutil.copytree(undamaged, tmp_path / "damaged")
    damage(tmp_path / "damaged", *BAD)
    return tmp_path / "damaged"


def picky(sample: dict[str, Any], bad: frozenset[int] = BAD) -> dict[str, Any]:
    if int(sample["id"]) in bad:
        raise ValueError(f"no use for {sample['id']}")
    return {"id": int(sample["id"]), "text": sample["text"]}


def ids(batch: dict[str, Any]) -> list[int]:
    return [int(number) for number in batch["id"]]


def loader(url: Any, *, transform: Any = None, batch_size: int = BATCH, **options: Any) -> StreamingDataLoader:
    names = ("rank", "world_size", "shuffle", "cache")
    of_data = {name: options.pop(name) for name in names if name in options}
    data = StreamingDataset(url, **{"seed": 5, "shuffle": mdsx.Shuffle(lanes=8), **of_data}, transform=transform)
    return StreamingDataLoader(data, batch_size, **{**SKIP, **options})


def expected(undamaged: Path, **options: Any) -> list[list[int]]:
    """Return the batches of the undamaged dataset without the bad samples."""
    names = ("rank", "world_size", "batch_size", "shuffle")
    same = {name: value for name, value in options.items() if name in names}
    return [[n for n in ids(batch) if n not in BAD] for batch in loader(undamaged, **same)]


Log = pytest.LogCaptureFixture


def check_log(caplog: Log, count: int, said: str) -> None:
    lines = [record.getMessage() for record in caplog.records if record.name == "mdsx"]
    assert len(lines) == len(set(lines)) == count, lines
    for line in lines:
        assert all(word in line for word in ("position", "shard", "sample", said)), line


@pytest.mark.parametrize("workers", [0, 2])
def test_a_transform_that_raises_skips_its_sample(undamaged: Path, workers: int, caplog: Log) -> None:
    found = loader(undamaged, transform=picky, num_workers=workers)
    assert [ids(batch) for batch in found] == expected(undamaged)
    assert found.stats().skipped == len(BAD)
    check_log(caplog, len(BAD), "ValueError: no use for")
    for _ in found:
        pass
    assert found.stats().skipped == 2 * len(BAD)


def test_more_failures_than_allowed_stop_the_run(undamaged: Path, caplog: Log) -> None:
    found = loader(undamaged, transform=picky, max_skipped=(len(BAD) - 1) / 1000)  # of 1,000 samples at least
    batches, iterator = list[Any](), iter(found)
    with pytest.raises(mdsx.SkippedError, match="max_skipped") as caught:
        batches.extend(iterator)
    assert "6 of the " in str(caught.value)
    assert str(caught.value).count("ValueError: no use for") == 3
    assert [ids(batch) for batch in batches] == expected(undamaged)[: len(batches)]
    assert found.stats().skipped < len(BAD)
    with pytest.raises(mdsx.SkippedError, match="6 of the "):  # the pass is still open
        next(iterator)
    resumed = loader(undamaged, transform=picky, max_skipped=(len(BAD) - 1) / 1000)
    resumed.load_state_dict(found.state_dict())
    assert [ids(batch) for batch in resumed] == expected(undamaged)[len(batches) :]  # it counts from 0
    caplog.clear()
    enough = loader(undamaged, transform=picky, max_skipped=len(BAD) / 1000)
    assert [ids(batch) for batch in enough] == expected(undamaged)
    check_log(caplog, len(BAD), "ValueError: no use for")


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("transform", [None, partial(picky, bad=frozenset())])
def test_damaged_samples_of_a_local_dataset_are_skipped(
    undamaged: Path, damaged: Path, transform: Any, workers: int, caplog: Log
) -> None:
    found = loader(damaged, transform=transform, num_workers=workers)
    batches = list(found)
    assert [ids(batch) for batch in batches] == expected(undamaged)
    assert all(batch["text"] == [f"sample {number:05}" for number in ids(batch)] for batch in batches)
    assert found.stats().skipped == len(BAD)
    check_log(caplog, len(BAD), "CorruptError")


@pytest.mark.slow_if("limit == '1GB'")
@pytest.mark.parametrize(("limit", "plain", "workers"), [("1GB", True, 0), ("6KB", False, 0), ("1GB", True, 2)])
def test_damaged_samples_of_a_cached_dataset_are_skipped(
    undamaged: Path, damaged: Path, s3: S3Server, s3_url: str, tmp_path: Path, limit: str, plain: bool, workers: int
) -> None:
    shutil.copytree(damaged, s3.directory / s3_url.removeprefix("s3://") / "data")
    options: dict[str, Any] = {"cache": mdsx.Cache(tmp_path / "cache", limit=limit), "num_workers": workers}
    transform = None if plain else partial(picky, bad=frozenset())
    found = loader(f"{s3_url}/data", transform=transform, **options)
    assert [ids(batch) for batch in found] == expected(undamaged)
    assert found.stats().skipped == len(BAD)


def test_damage_and_a_failing_transform_are_skipped_in_one_batch(damaged: Path) -> None:
    found = loader(damaged, transform=partial(picky, bad=frozenset({4, 53})), shuffle=False)
    assert [n for batch in found for n in ids(batch)] == [n for n in range(N) if n not in BAD | {4, 53}]
    assert found.stats().skipped == len(BAD) + 2


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("collate", [False, True])
def test_a_batch_without_samples_is_empty(undamaged: Path, workers: int, collate: bool) -> None:
    def stacked(samples: list[dict[str, Any]]) -> dict[str, Any]:
        return {"id": torch.tensor([sample["id"] for sample in samples]), "text": [s["text"] for s in samples]}

    bad = frozenset(range(20, 40)) | {0}
    found = loader(
        undamaged,
        transform=partial(picky, bad=bad),
        shuffle=False,
        num_workers=workers,
        collate_fn=stacked if collate else None,
    )
    batches = list(found)
    assert len(batches) == len(found)
    assert [ids(batch) for batch in batches[1:5]] == [[*range(10, 20)], [], [], [*range(40, 50)]]
    assert (batches[2]["id"].dtype, batches[2]["id"].shape, batches[2]["text"]) == (torch.int64, (0,), [])
    assert found.stats().skipped == 21


@pytest.mark.parametrize("workers", [0, 2])
def test_an_empty_batch_of_columns_has_their_types(undamaged: Path, tmp_path: Path, workers: int) -> None:
    shutil.copytree(undamaged, tmp_path / "damaged")
    damage(tmp_path / "damaged", *range(20, 30))
    batches = list(loader(tmp_path / "damaged", shuffle=False, num_workers=workers))
    assert batches[2]["id"].shape == (0,)
    assert (batches[2]["tokens"].shape, batches[2]["tokens"].dtype) == ((0, 4), torch.uint16)
    assert (batches[2]["text"], batches[2]["maybe"]) == ([], [])
    assert ids(batches[3]) == [*range(30, 40)]


def test_an_epoch_without_samples_raises_the_samples_error(undamaged: Path) -> None:
    found = iter(loader(undamaged, transform=partial(picky, bad=frozenset(range(N)))))
    with pytest.raises(ValueError, match="no use for") as raised:
        next(found)
    assert any("an empty batch has no structure" in note for note in raised.value.__notes__)


@pytest.mark.slow_if("workers == 2")
@pytest.mark.parametrize(("transform", "workers"), [(None, 0), (partial(picky, bad=frozenset()), 0), (None, 2)])
def test_the_mask_of_repeat_stays_right(damaged: Path, transform: Any, workers: int) -> None:
    damage(damaged, *({*range(20, 30)} - BAD), 200)
    bad, counts, valid = BAD | {*range(20, 30), 200}, [], list[int]()
    for rank in range(4):
        whole = loader(
            damaged,
            transform=transform,
            shuffle=False,
            batch_size=5,
            rank=rank,
            world_size=4,
            uneven="repeat",
            num_workers=workers,
        )
        counts.append(0)
        for batch in whole:
            counts[-1] += 1
            assert batch["valid"].shape == batch["id"].shape
            assert len(batch["id"]) > 0
            valid += batch["id"][batch["valid"]].tolist()
    assert len(set(counts)) == 1
    assert sorted(valid) == sorted({*range(N)} - bad)


@pytest.mark.parametrize(("transform", "workers"), [(None, 0), (None, 2), (picky, 2)])
def test_a_resume_in_the_middle_is_exact(undamaged: Path, damaged: Path, transform: Any, workers: int) -> None:
    url = damaged if transform is None else undamaged
    before = loader(url, transform=transform, num_workers=workers)
    batches = iter(before)
    taken = [ids(next(batches)) for _ in range(7)]
    after = loader(url, transform=transform, num_workers=2 - workers)
    after.load_state_dict(before.state_dict())
    assert taken + [ids(batch) for batch in after] == expected(undamaged)
    assert before.stats().skipped + after.stats().skipped == len(BAD)  # batches prepared ahead do not count


def test_unused_prefetched_batches_are_not_logged(undamaged: Path, caplog: Log) -> None:
    found = loader(undamaged, transform=picky)
    for _ in range(3):
        next(iter(found))
        found.load_state_dict({**found.state_dict(), "position": 0})
    first = ids(next(iter(loader(undamaged))))
    assert not BAD.intersection(first)
    assert found.stats().skipped == 0
    check_log(caplog, 0, "")


# --- what is never skipped


@pytest.mark.parametrize("workers", [0, 2])
def test_an_exception_of_collate_fn_is_raised(undamaged: Path, workers: int) -> None:
    def collate(samples: list[Any]) -> Any:
        raise mdsx.CorruptError("in collate")

    with pytest.raises(mdsx.CorruptError, match="in collate"):
        next(iter(loader(undamaged, drop_last=True, collate_fn=collate, num_workers=workers)))


def another_shard(folder: Path) -> None:
    one, two, *_ = sorted(folder.glob("shard.*"))
    shutil.copy(two, one)


def swapped_shards(folder: Path) -> None:
    one, two, *_ = sorted(folder.glob("shard.*"))
    first = one.read_bytes()
    shutil.copy(two, one)
    two.write_bytes(first)


def no_shard(folder: Path) -> None:
    min(folder.glob("shard.*")).unlink()


def empty_shard(folder: Path) -> None:
    min(folder.glob("shard.*")).write_bytes(b"")


def spoil_header(folder: Path) -> None:
    path = min(folder.glob("shard.*"))
    path.write_bytes(path.read_bytes()[:70] + b"?" + path.read_bytes()[71:])


def damaged_header(folder: Path) -> None:
    """The shard also has a damaged sample, so nothing proves that it is the right shard."""
    spoil_header(folder)
    damage(folder, 0)


@pytest.mark.parametrize("spoil", [another_shard, swapped_shards, no_shard, empty_shard, damaged_header])
@pytest.mark.parametrize("remote", [False, True])
def test_a_wrong_shard_is_raised(
    undamaged: Path, tmp_path: Path, s3: S3Server, s3_url: str, spoil: Callable[[Path], None], remote: bool
) -> None:
    folder = s3.directory / s3_url.removeprefix("s3://") / "data" if remote else tmp_path / "data"
    shutil.copytree(undamaged, folder)
    spoil(folder)
    options: dict[str, Any] = {"cache": tmp_path / "cache"} if remote else {}
    found = loader(f"{s3_url}/data" if remote else folder, **options)
    with pytest.raises(mdsx.MdsxError, match=r"shard\.0000") as raised:
        list(found)
    assert found.stats().skipped == 0
    if spoil is not no_shard:
        assert isinstance(raised.value, mdsx.CorruptError | mdsx.TransportError)


def test_a_damaged_header_costs_no_undamaged_sample(undamaged: Path, tmp_path: Path) -> None:
    """A checksum proves each of them."""
    shutil.copytree(undamaged, tmp_path / "data")
    spoil_header(tmp_path / "data")
    found = loader(tmp_path / "data")
    assert sorted(n for batch in found for n in ids(batch)) == [*range(N)]
    assert found.stats().skipped == 0


def test_an_empty_batch_of_a_mixture_has_its_component_column(undamaged: Path, damaged: Path) -> None:
    damage(damaged, *({*range(10)} - BAD))
    data = StreamingDataset(mdsx.Mixture([damaged, undamaged], component_column="part"), shuffle=False)
    batches = list(StreamingDataLoader(data, BATCH, on_error="skip"))
    assert batches[0]["part"].shape == (0,)
    assert (batches[0]["part"].dtype, ids(batches[1])) == (torch.int64, [*range(10, 20)])
    assert (batches[-1]["part"] == 1).all()


def test_a_failure_of_storage_is_raised(
    proxy: Proxy, undamaged: Path, s3: S3Server, s3_url: str, tmp_path: Path
) -> None:
    shutil.copytree(undamaged, s3.directory / s3_url.removeprefix("s3://") / "data")
    found = loader(f"{s3_url}/data", cache=tmp_path / "cache")
    proxy.add(status(403, "AccessDenied"), key="*/shard.*")
    for attempt in range(3):
        with pytest.raises(mdsx.ForbiddenError) as raised:
            next(iter(found))
        assert attempt < 2 or "on_error" not in "".join(raised.value.__notes__)


def test_a_damaged_frame_costs_its_samples_only(tmp_path: Path) -> None:
    columns, each = {"id": "int64", "noise": "bytes"}, 100_000
    with mdsx.Writer(tmp_path / "data", columns, compression="zstd") as out:
        for number in range(40):
            out.write({"id": number, "noise": Random(number).randbytes(each)})
    (path,) = (tmp_path / "data").glob("shard.*")
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    found = loader(tmp_path / "data", cache=tmp_path / "cache", shuffle=False, batch_size=4)
    left = [n for batch in found for n in ids(batch)]
    lost = sorted({*range(40)} - set(left))
    assert left == sorted(left)
    assert 9 <= len(lost) <= 13
    assert lost == [*range(lost[0], lost[-1] + 1)]
    assert found.stats().skipped == len(lost)


# --- the way out


def notes_of_failures(found: StreamingDataLoader) -> list[str]:
    """For three failures of the first batch in a row, which ways past it the error names."""
    named = []
    for _ in range(3):
        with pytest.raises(Exception) as raised:  # noqa: PT011  whatever it is
            next(iter(found))
        notes = "".join(getattr(raised.value, "__notes__", ()))
        named.append(" ".join(way for way in ('on_error="skip"', "load_state_dict") if way in notes))
    return named


@pytest.mark.parametrize("workers", [0, 2])
def test_the_third_failure_names_skip(damaged: Path, undamaged: Path, workers: int) -> None:
    options: dict[str, Any] = {"on_error": "raise", "shuffle": False, "num_workers": workers}
    assert notes_of_failures(loader(damaged, **options)) == ["", "", 'on_error="skip" load_state_dict']
    assert notes_of_failures(loader(undamaged, transform=picky, **options)) == [
        "",
        "",
        'on_error="skip" load_state_dict',
    ]


def test_the_third_failure_names_only_a_skip_that_helps(undamaged: Path, tmp_path: Path) -> None:
    def collate(samples: list[Any]) -> Any:
        raise mdsx.CorruptError("in collate")

    raising: dict[str, Any] = {"on_error": "raise", "shuffle": False}
    other = ["", "", "load_state_dict"]
    assert notes_of_failures(loader(undamaged, collate_fn=collate, drop_last=True, **raising)) == other
    shutil.copytree(undamaged, tmp_path / "data")
    another_shard(tmp_path / "data")
    assert notes_of_failures(loader(tmp_path / "data", **raising)) == other


@pytest.mark.parametrize(
    ("batching", "schedule"),
    [({"micro_batch": 4}, {0: {"a": 1, "b": 1}}), ({}, {0: {"a": 1, "b": 1}, 16: {"a": 1, "b": 3}})],
    ids=["a step of several batches", "the last batch of a phase"],
)
def test_the_way_past_a_batch_ends_after_it(undamaged: Path, batching: dict[str, Any], schedule: Any) -> None:
    def collate(samples: list[Any]) -> Any:
        raise ValueError("no use for this")

    def opened(**options: Any) -> mdsx.Loader:
        mixture = mdsx.Mixture({"a": str(undamaged), "b": str(undamaged)}, schedule=schedule)
        return mdsx.Loader(mixture, global_batch_size=16, columns=["id"], rank=0, world_size=1, **batching, **options)

    failing = opened(collate_fn=collate)
    for _ in range(3):
        with pytest.raises(ValueError, match="no use") as raised:
            next(iter(failing))
    (changes,) = re.findall(r"\{\*\*loader\.state_dict\(\), (.*)\}\)$", raised.value.__notes__[-1])
    found = opened()
    found.load_state_dict({**failing.state_dict(), **literal_eval(f"{{{changes}}}")})
    assert found.state_dict()["position"] == 16


def test_other_values_are_refused(undamaged: Path) -> None:
    with pytest.raises(mdsx.UsageError, match="'raise' or 'skip'"):
        loader(undamaged, on_error="ignore")
