"""A part is appended to a finished dataset: samples keep their numbers, and snapshots and states stay good."""

from __future__ import annotations

import json
import logging
import shutil
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mdsx
from mdsx.datasets import excerpt_of
from mdsx.shards import View, lengths_of
from mdsx.storage.local import LocalStorage
from tests.conftest import Often
from tests.writer.jobs import Contents, DieAt, DieBefore, Hook, contents, killed, start_job

COLUMNS = {"id": "int64", "tokens": "uint16[*]"}
KEY = "_lengths/tokens.u32"


def write(url: Path | str, first: int, stop: int, *, columns: dict[str, str] = COLUMNS, **options: Any) -> None:
    with mdsx.Writer(url, columns, shard_size=2000, **options) as out:
        for number in range(first, stop):
            out.write({"id": number, **({"tokens": np.zeros(number % 30, np.uint16)} if "tokens" in columns else {})})


@pytest.fixture
def direct(tmp_path: Path) -> Path:
    """200 samples whose shards are in the root, with lengths and metadata; 50 and 30 more in parts beside them."""
    root = tmp_path / "direct"
    write(root, 0, 200, lengths=["tokens"], metadata={"license": "CC0"})
    write(root / "part-00000", 200, 250, metadata={"night": 0})
    write(root / "part-00001", 250, 280, lengths=["tokens"])
    return root


@pytest.fixture
def merged(tmp_path: Path) -> Path:
    """200 samples in two parts; 50 more in a third one."""
    root = tmp_path / "merged"
    for part, (first, stop) in enumerate([(0, 120), (120, 200)]):
        write(root / f"part-{part:05d}", first, stop, compression="zstd")
    mdsx.merge(root)
    write(root / "part-00002", 200, 250, compression="zstd")
    return root


def ids(dataset: mdsx.Dataset) -> list[int]:
    return [int(sample["id"]) for sample in dataset]


def lengths(dataset: mdsx.Dataset) -> list[int]:
    view = View([excerpt_of(dataset)])
    shards = np.repeat(np.arange(len(view.counts)), view.counts)
    found: list[int] = (
        lengths_of(view, "tokens").of(shards, np.concatenate([np.arange(count) for count in view.counts])).tolist()
    )
    return found


def unchanged(before: Contents, after: Contents) -> bool:
    return all(after[name] == data for name, data in before.items() if name not in ("index.json", KEY))


# --- what an append makes


def test_samples_keep_their_numbers_and_new_ones_follow(direct: Path) -> None:
    before, old = contents(direct), mdsx.Dataset(direct)
    done = mdsx.append(direct, "part-00000")
    data = mdsx.Dataset(direct)
    assert done == mdsx.Appended(str(direct), "part-00000", 200, 50, data.fingerprint, old.fingerprint)
    assert ids(data) == list(range(250))
    assert data.metadata == {"license": "CC0"}  # the first one's
    assert ids(old) == list(range(200))  # open since before
    again = mdsx.append(direct, direct / "part-00001")  # the part's path is as good as its name
    assert (again.first, again.samples, again.snapshot) == (250, 30, data.fingerprint)
    assert ids(mdsx.Dataset(direct)) == list(range(280))
    assert unchanged(before, contents(direct))
    assert mdsx.verify(direct).ok
    assert not mdsx.repair(direct).needed


def test_a_snapshot_is_the_dataset_as_it_was(direct: Path) -> None:
    index, first = (direct / "index.json").read_bytes(), mdsx.Dataset(direct).fingerprint
    second = mdsx.append(direct, "part-00000").fingerprint
    third = mdsx.append(direct, "part-00001").fingerprint
    assert (direct / f"index-{first}.json").read_bytes() == index
    for fingerprint, samples in ((first, 200), (second, 250), (third, 280)):  # the last one is the dataset itself
        kept = mdsx.Dataset(direct, snapshot=fingerprint)
        assert (kept.fingerprint, ids(kept)) == (fingerprint, list(range(samples)))
    with pytest.raises(mdsx.MissingError, match=f"no such snapshot.*{first}, {second}, {third}.*now"):
        mdsx.Dataset(direct, snapshot="0" * 32)
    for wrong in ("../index", "ABC", 7):
        with pytest.raises(mdsx.UsageError, match="by its fingerprint"):
            mdsx.Dataset(direct, snapshot=wrong)  # type: ignore[arg-type]
    shutil.copy(direct / f"index-{second}.json", direct / f"index-{first}.json")
    with pytest.raises(mdsx.CorruptError, match="index of another dataset"):
        mdsx.Dataset(direct, snapshot=first)


def test_a_merge_of_all_parts_gives_the_same_index(merged: Path) -> None:
    mdsx.append(merged, "part-00002")
    appended = (merged / "index.json").read_bytes()
    assert ids(mdsx.Dataset(merged)) == list(range(250))
    mdsx.merge(merged, overwrite=True)
    assert (merged / "index.json").read_bytes() == appended


def test_a_merge_refuses_to_lose_shards_beside_the_parts(direct: Path) -> None:
    mdsx.append(direct, "part-00000")
    before = contents(direct)
    with pytest.raises(mdsx.UsageError, match="shards beside the parts"):
        mdsx.merge(direct, overwrite=True)
    assert contents(direct) == before


def test_a_part_is_appended_once(direct: Path) -> None:
    done = mdsx.append(direct, "part-00000")
    before = contents(direct)
    assert mdsx.append(direct, "part-00000") == mdsx.Appended(
        str(direct), "part-00000", 200, 50, done.fingerprint, None
    )
    mdsx.append(direct, "part-00001")
    assert mdsx.append(direct, "part-00000").snapshot is None  # also after another one
    assert unchanged(before, contents(direct))
    shutil.rmtree(direct / "part-00000")
    write(direct / "part-00000", 300, 310)
    with pytest.raises(mdsx.UsageError, match="part-00000: the dataset has this part already, with other shards"):
        mdsx.append(direct, "part-00000")


def test_an_object_store_keeps_snapshots_too(s3_url: str) -> None:
    write(s3_url, 0, 20)
    write(f"{s3_url}/part-00000", 20, 30)
    first = mdsx.Dataset(s3_url).fingerprint
    assert mdsx.append(s3_url, f"{s3_url}/part-00000").snapshot == first
    assert ids(mdsx.Dataset(s3_url)) == list(range(30))
    assert len(mdsx.Dataset(s3_url, snapshot=first)) == 20


# --- what is refused, before anything is written


def unfinished(root: Path) -> None:
    (root / "part-00000" / "index.json").unlink()


def writer_in_part(root: Path) -> None:
    (root / "part-00000" / "_mdsx").mkdir()
    (root / "part-00000" / "_mdsx" / "writer.json").write_text("{}")


def writer_in_root(root: Path) -> None:
    (root / "_mdsx").mkdir()
    (root / "_mdsx" / "writer.json").write_text("{}")


def missing_shard(root: Path) -> None:
    (root / "part-00000" / "shard.00000.mdsx").unlink()


def cut_shard(root: Path) -> None:
    shard = root / "part-00000" / "shard.00000.mdsx"
    shard.write_bytes(shard.read_bytes()[:-1])


def rewritten(root: Path, first: int, stop: int, **options: Any) -> None:
    shutil.rmtree(root / "part-00000")
    write(root / "part-00000", first, stop, **options)


def other_format(root: Path) -> None:
    (root / "index.json").write_text('{"version":2,"shards":[]}')


def later_part(root: Path) -> None:
    mdsx.append(root, "part-00001")


REFUSED: list[tuple[Callable[[Path], None], type[mdsx.MdsxError], str]] = [
    (unfinished, mdsx.MissingError, "part-00000: the part is unfinished.*finish writing it"),
    (writer_in_part, mdsx.UsageError, "part-00000: a writer has not finished here.*resume=True"),
    (writer_in_root, mdsx.UsageError, "direct: a writer has not finished here.*resume=True"),
    (missing_shard, mdsx.MissingError, "part-00000/shard.00000.mdsx: a shard of the part is missing.*write part-00000"),
    (cut_shard, mdsx.MissingError, "part-00000/shard.00000.mdsx: .*another size"),
    (
        partial(rewritten, first=0, stop=5, columns={"id": "int64"}),
        mdsx.UsageError,
        "part-00000.*columns.*does not fit",
    ),
    (partial(rewritten, first=0, stop=5, compression="zstd"), mdsx.UsageError, "part-00000.*compression.*none.*zstd"),
    (partial(rewritten, first=0, stop=0), mdsx.UsageError, "part-00000: the part has no samples"),
    (other_format, mdsx.UsageError, "index.json: only datasets of mdsx's own format.*MDS.*convert"),
    (later_part, mdsx.UsageError, "part-00000: .*order of their numbers.*part-00002 or a higher.*part-00001"),
]


@pytest.mark.parametrize(("change", "error", "message"), REFUSED)
def test_what_does_not_fit_is_refused(
    change: Callable[[Path], None], error: type[mdsx.MdsxError], message: str, direct: Path
) -> None:
    change(direct)
    before = contents(direct)
    with pytest.raises(error, match=f"(?s){message}"):
        mdsx.append(direct, "part-00000")
    assert contents(direct) == before


@pytest.mark.parametrize("part", ["nights/1", "part-1", "night", "../part-00000", "/elsewhere/part-00000", "", "."])
def test_a_part_is_a_folder_below_the_dataset(part: str, direct: Path) -> None:
    before = contents(direct)
    with pytest.raises(mdsx.UsageError):
        mdsx.append(direct, part)
    assert contents(direct) == before


def test_without_a_dataset_there_is_nothing_to_append_to(tmp_path: Path) -> None:
    write(tmp_path / "part-00000", 0, 5)
    with pytest.raises(mdsx.MissingError, match=r"no finished dataset.*mdsx merge"):
        mdsx.append(tmp_path, "part-00000")
    assert not (tmp_path / "index.json").exists()


# --- two at once, and kills


@pytest.fixture
def ahead(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Has another append of a part get ahead of the next replace."""

    def patch(part: str) -> None:
        original = LocalStorage.replace

        def replace(self: LocalStorage, key: str, data: bytes, *, etag: str) -> None:
            monkeypatch.setattr(LocalStorage, "replace", original)
            mdsx.append(self.url, part)
            self.replace(key, data, etag=etag)

        monkeypatch.setattr(LocalStorage, "replace", replace)

    return patch


def test_of_two_appends_at_once_none_is_lost(direct: Path, ahead: Callable[[str], None]) -> None:
    ahead("part-00000")
    with warnings.catch_warnings(action="error"):
        done = mdsx.append(direct, "part-00001")
    assert lengths(mdsx.Dataset(direct)) == [number % 30 for number in range(280)]
    assert (done.first, done.samples) == (250, 30)
    assert ids(mdsx.Dataset(direct)) == list(range(280))
    assert ids(mdsx.Dataset(direct, snapshot=done.snapshot)) == list(range(250))


def test_a_part_that_comes_too_late_is_refused(direct: Path, ahead: Callable[[str], None]) -> None:
    ahead("part-00001")
    with pytest.raises(mdsx.UsageError, match=r"part-00000: .*order of their numbers"):
        mdsx.append(direct, "part-00000")
    assert ids(mdsx.Dataset(direct)) == [*range(200), *range(250, 280)]


def test_a_kill_leaves_the_old_dataset_or_the_new_one(direct: Path, tmp_path: Path, often: Often) -> None:
    old = (direct / "index.json").read_bytes()
    shutil.copytree(direct, tmp_path / "undisturbed")
    mdsx.append(tmp_path / "undisturbed", "part-00000")
    after = contents(tmp_path / "undisturbed")
    fingerprint = mdsx.Dataset(direct).fingerprint
    hooks: list[Hook] = [DieBefore(f"index-{fingerprint}.json"), DieBefore("index.json")]
    hooks += [DieBefore(".index.json.lock.mdsx-tmp", "unlink"), DieBefore("tokens.u32")]  # the index is new
    hooks += [DieAt(changes) for changes in range(1, often(0, long=80))]
    for number, hook in enumerate(hooks):
        root = tmp_path / str(number)
        shutil.copytree(direct, root)
        assert killed(start_job(partial(mdsx.append, str(root), "part-00000"), hook=hook)) or number > 30
        is_old = (root / "index.json").read_bytes() == old
        assert number >= 4 or is_old == (number < 2)
        assert ids(mdsx.Dataset(root)) == list(range(200 if is_old else 250))
        mdsx.append(root, "part-00000")
        assert contents(root) == after


# --- lengths


def test_lengths_are_extended(direct: Path, recwarn: pytest.WarningsRecorder) -> None:
    for part in ("part-00000", "part-00001"):  # without lengths of its own, and with them
        mdsx.append(direct, part)
    data = (direct / KEY).read_bytes()
    assert lengths(mdsx.Dataset(direct)) == [number % 30 for number in range(280)]
    mdsx.write_lengths(direct, "tokens")
    assert (direct / KEY).read_bytes() == data
    first = json.loads((direct / "index.json").read_bytes())["fingerprint"]
    kept = next(path for path in direct.glob("index-*.json") if first not in path.name)
    snapshot = mdsx.Dataset(direct, snapshot=kept.stem.removeprefix("index-"))
    assert lengths(snapshot) == [number % 30 for number in range(len(snapshot))]
    assert not recwarn.list


def test_damaged_lengths_are_left_with_a_warning(direct: Path) -> None:
    data = (direct / KEY).read_bytes()
    damaged = data[:-40] + b"x" + data[-39:]
    (direct / KEY).write_bytes(damaged)
    with pytest.warns(UserWarning, match=r"tokens.u32: .*not used: .*; rewrite them: mdsx lengths .* --column tokens"):
        mdsx.append(direct, "part-00000")
    assert (direct / KEY).read_bytes() == damaged


@pytest.mark.parametrize("key", ["index.json", KEY])
def test_appends_at_the_same_time_leave_the_lengths_of_all(
    direct: Path, monkeypatch: pytest.MonkeyPatch, recwarn: pytest.WarningsRecorder, key: str
) -> None:
    replace = LocalStorage.replace

    def with_another(storage: LocalStorage, name: str, data: Any, *, etag: str) -> None:
        if name == key:  # it runs after this one's index, or just before this one's lengths
            monkeypatch.setattr(LocalStorage, "replace", replace)
            if key == KEY:
                mdsx.append(direct, "part-00001")
        replace(storage, name, data, etag=etag)
        if name == key == "index.json":
            mdsx.append(direct, "part-00001")

    monkeypatch.setattr(LocalStorage, "replace", with_another)
    mdsx.append(direct, "part-00000")
    assert LocalStorage.replace is replace
    found = (direct / KEY).read_bytes()
    mdsx.write_lengths(direct, "tokens")
    assert (direct / KEY).read_bytes() == found
    assert not recwarn.list


def sums(root: Path, name: str = "index.json") -> object:
    return json.loads((root / name).read_bytes()).get("lengths")


def test_the_index_has_the_sum_of_all_lengths(direct: Path) -> None:
    first = mdsx.append(direct, "part-00000").snapshot  # without lengths of its own
    assert sums(direct) == {"tokens": sum(number % 30 for number in range(250))}
    mdsx.append(direct, "part-00001")
    assert sums(direct) == {"tokens": sum(number % 30 for number in range(280))}
    assert sums(direct, f"index-{first}.json") == {"tokens": sum(number % 30 for number in range(200))}


def test_lengths_that_are_damaged_in_part_are_read_from_the_rows(direct: Path) -> None:
    (direct / KEY).write_bytes(b"\xff" + (direct / KEY).read_bytes()[1:])
    with pytest.warns(UserWarning, match="damaged"):
        mdsx.append(direct, "part-00000")
    assert lengths(mdsx.Dataset(direct)) == [number % 30 for number in range(250)]


# --- runs


def taken(loader: mdsx.Loader, batches: int) -> list[list[int]]:
    iterator = iter(loader)
    return [next(iterator)["id"].tolist() for _ in range(batches)]


@pytest.mark.parametrize("rank", [0, 1])
def test_a_run_continues_with_the_snapshot_of_its_state(
    direct: Path, rank: int, caplog: pytest.LogCaptureFixture
) -> None:
    def opened(**options: Any) -> mdsx.Loader:
        return mdsx.Loader(direct, 8, seed=3, rank=rank, world_size=2, **options)

    whole = opened()
    expected = [batch["id"].tolist() for batch in whole] + [batch["id"].tolist() for batch in whole]
    loader = opened()
    seen = taken(loader, 3)
    state = json.loads(json.dumps(loader.state_dict()))
    seen += taken(loader, 0)
    mdsx.append(direct, "part-00000")

    resumed = opened()  # the same program, started again
    waiting = iter(resumed)
    with caplog.at_level(logging.WARNING, "mdsx"):
        resumed.load_state_dict(state)
    assert ("200 samples" in caplog.text) == (rank == 0)
    seen += [batch["id"].tolist() for batch in waiting]
    assert resumed.state_dict()["fingerprint"] == state["fingerprint"]
    seen += [batch["id"].tolist() for batch in resumed]
    assert seen == expected

    everything = opened(drop_last=False)
    assert len([number for batch in everything for number in batch["id"]]) == 125
    with pytest.raises(mdsx.StateError, match="seed"):
        mdsx.Loader(direct, 8, seed=4, rank=rank, world_size=2).load_state_dict(state)
    with pytest.raises(mdsx.StateError, match=r"fingerprint.*snapshot="):
        opened().load_state_dict({**state, "fingerprint": "0" * 32})


def test_a_dataset_that_was_opened_as_a_snapshot_stays_one(direct: Path) -> None:
    first = mdsx.Dataset(direct).fingerprint
    mdsx.append(direct, "part-00000")
    state = mdsx.Loader(direct, 8).state_dict()
    loader = mdsx.Loader(mdsx.Dataset(direct, snapshot=first), 8)
    with pytest.raises(mdsx.StateError, match="fingerprint"):
        loader.load_state_dict(state)
    loader.load_state_dict({**state, "fingerprint": first, "epoch_samples": 200})


@pytest.mark.parametrize("given", [True, False])
def test_packed_rows_continue_with_the_snapshot(direct: Path, given: bool) -> None:
    def opened(samples: int) -> mdsx.Loader:
        length = np.arange(samples) % 30 if given else "tokens"
        return mdsx.Loader(direct, 2, batching=mdsx.Pack(64, length=length), columns=["id", "tokens"], seed=1)

    def rows(loader: mdsx.Loader) -> list[Any]:
        return [batch["id"] for batch in loader]

    expected, loader = rows(opened(200)), opened(200)
    iterator = iter(loader)
    seen = [next(iterator)["id"] for _ in range(4)]
    state = loader.state_dict()
    mdsx.append(direct, "part-00000")
    resumed = opened(250)
    resumed.load_state_dict(state)
    assert str(seen + rows(resumed)) == str(expected)


def test_selections_and_mixtures_say_how_to_open_the_snapshot(direct: Path) -> None:
    first = mdsx.Dataset(direct).fingerprint

    def mixture(snapshot: str | None = None) -> mdsx.Loader:
        return mdsx.Loader(mdsx.Mixture([mdsx.Dataset(direct, snapshot=snapshot)]), 8)

    def selection(snapshot: str | None = None) -> mdsx.Loader:
        return mdsx.Loader(mdsx.Dataset(direct, snapshot=snapshot).select_share(0.0, 0.5), 8)

    states = [make().state_dict() for make in (mixture, selection)]
    mdsx.append(direct, "part-00000")
    for make, state in zip((mixture, selection), states, strict=True):
        with pytest.raises(
            mdsx.StateError, match=r"(fingerprint|component).*mdsx.Dataset\(url, snapshot=.*\).*mdsx info"
        ):
            make().load_state_dict(state)
        make(first).load_state_dict(state)


# --- the cache, and repairs


def test_cached_shards_stay_of_use(merged: Path, tmp_path: Path) -> None:
    cache = mdsx.Cache(tmp_path / "cache")
    assert ids(mdsx.Dataset(merged, cache=cache))
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "cache").rglob("*.mdsx")}
    snapshot = mdsx.append(merged, "part-00002").snapshot
    assert before
    assert ids(mdsx.Dataset(merged, cache=cache)) == list(range(250))
    after = {path.name for path in (tmp_path / "cache").rglob("*.mdsx")}
    assert len(list((tmp_path / "cache").rglob("*.mdsx"))) == len(after) > len(before)  # none is there twice
    assert ids(mdsx.Dataset(merged, cache=cache, snapshot=snapshot)) == list(range(200))
    assert {path.name for path in (tmp_path / "cache").rglob("*.mdsx")} == after
    assert {path.name for path in before} < after


@pytest.mark.parametrize("lost", [True, False])
def test_a_lost_index_is_rebuilt_in_the_order_of_the_appends(lost: bool, direct: Path) -> None:
    mdsx.append(direct, "part-00001")  # the number before it stays free
    shutil.rmtree(direct / "part-00000")
    index = direct / "index.json"
    before = index.read_bytes()
    if lost:
        index.unlink()
    else:
        index.write_bytes(before[:100] + b"?" + before[101:])
    done = mdsx.repair(direct)
    assert done.written
    assert index.read_bytes() == before
    assert done.proven != lost


def test_a_damaged_snapshot_is_found(direct: Path) -> None:
    snapshot = direct / f"index-{mdsx.append(direct, 'part-00000').snapshot}.json"
    snapshot.write_bytes(snapshot.read_bytes()[:-9])
    found = mdsx.verify(direct)
    assert not found.ok
    assert [damage.file for damage in found] == [str(snapshot)]
    assert ids(mdsx.Dataset(direct)) == list(range(250))


def test_a_repair_leaves_snapshots_alone(direct: Path) -> None:
    first = mdsx.append(direct, "part-00000").snapshot
    shard = direct / "part-00000" / "shard.00000.mdsx"
    data = bytearray(shard.read_bytes())
    data[-1] ^= 1
    shard.write_bytes(data)
    assert not mdsx.verify(direct).ok
    done = mdsx.repair(direct, drop_damaged=True)
    assert done.samples == 249
    assert (direct / "part-00000" / "repaired.shard.00000.mdsx").exists()
    assert ids(mdsx.Dataset(direct, snapshot=first)) == list(range(200))
    with pytest.warns(UserWarning, match="mdsx lengths"):  # a repair leaves those of the dataset before it
        assert mdsx.append(direct, "part-00001").first == 249
    with pytest.raises(mdsx.UsageError, match="already, with other shards"):
        mdsx.append(direct, "part-00000")


def test_a_writer_that_resumes_finds_the_dataset_finished(direct: Path) -> None:
    mdsx.append(direct, "part-00000")
    before = contents(direct)
    with mdsx.Writer(direct, COLUMNS, shard_size=2000, resume=True) as out:
        assert out.samples == 250
        with pytest.raises(mdsx.UsageError, match=r"finished.*mdsx append"):
            out.write({"id": 0, "tokens": []})
    assert contents(direct) == before
