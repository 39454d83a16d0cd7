"""`repair` drops damaged samples, only on request. It loses, changes or invents nothing else."""

from __future__ import annotations

import importlib
import random
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import mdsx
from mdsx.checks.damage import Repair
from mdsx.format import compress
from mdsx.storage import Storage, open_storage
from tests.checks.damage.datasets import (
    COLUMNS,
    FRAME,
    holds,
    index_of,
    plain_shards,
    read,
    samples,
    write,
    write_parts,
)
from tests.conftest import Often
from tests.writer.jobs import contents
from tools.fault_proxy import Proxy, cut

STORED = [None, "zstd"]
WRITTEN = samples(200)


@pytest.fixture(params=STORED)
def dataset(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    write(tmp_path / "x", WRITTEN, compression=request.param, metadata={"made by": "us", "n": [1, None]})
    return tmp_path / "x"


@pytest.fixture
def plain(tmp_path: Path) -> Path:
    write(tmp_path / "x", WRITTEN)
    return tmp_path / "x"


def shards(root: Path) -> list[Path]:
    return sorted(root.rglob("shard.*"))


def flip(path: Path, place: int, change: int = 1) -> None:
    data = bytearray(path.read_bytes())
    data[place] ^= change
    path.write_bytes(data)


def repaired(root: Path | str, **options: Any) -> Repair:
    """Repair, then check that the dataset is undamaged and a second repair has nothing to do."""
    done = mdsx.repair(root, **options)
    assert done.written
    assert list(mdsx.verify(root)) == []
    again = mdsx.repair(root)
    assert (again.needed, again.samples, again.fingerprint) == (False, done.samples, None)
    return done


# --- the report


def test_a_repair_is_a_report_of_its_damages(plain: Path) -> None:
    undamaged = mdsx.repair(plain)
    assert (undamaged.ok, list(undamaged), repr(undamaged)) == (
        True,
        [],
        f"<Repair of {plain}: no damage, nothing to repair>",
    )
    shards(plain)[0].unlink()
    (plain / "index.json").unlink()
    found = mdsx.repair(plain)
    assert not found.ok
    assert [Path(damage.file or "").name for damage in found] == ["index.json", shards_name(0)]
    assert len(found) == 2
    done = mdsx.repair(plain, drop_damaged=True)
    assert done.ok
    assert repr(done).startswith(f"<Repair of {plain}: 2 problems, repaired")


def shards_name(number: int) -> str:
    return f"shard.{number:05}.mdsx"


# --- nothing to do


def test_an_undamaged_dataset_is_left_as_it_is(dataset: Path) -> None:
    before = contents(dataset)
    done = mdsx.repair(dataset, drop_damaged=True)
    assert (done.needed, done.written, done.samples, done.shards) == (False, False, 200, len(shards(dataset)))
    assert contents(dataset) == before


# --- the index


@pytest.mark.parametrize("compression", STORED)
def test_a_missing_index_is_rebuilt_byte_for_byte(compression: str | None, tmp_path: Path) -> None:
    write(tmp_path, WRITTEN, compression=compression)
    before = contents(tmp_path)
    (tmp_path / "index.json").unlink()
    done = repaired(tmp_path)
    assert (done.index, done.old_index, done.samples) == ("missing", None, 200)
    assert contents(tmp_path) == before


@pytest.mark.parametrize(
    "lost", [["index.json"], ["index.json", "part-00001/index.json"], ["index.json", "part-*/index.json"]]
)
@pytest.mark.parametrize("compression", STORED)
def test_a_merged_dataset_is_rebuilt_from_its_parts_or_names(
    compression: str | None, lost: list[str], tmp_path: Path
) -> None:
    write_parts(tmp_path, WRITTEN, 3, compression=compression)
    before = (tmp_path / "index.json").read_bytes()
    for pattern in ["index.json", *lost]:
        for path in tmp_path.glob(pattern):
            path.unlink()
    repaired(tmp_path)
    assert (tmp_path / "index.json").read_bytes() == before


def test_a_merged_dataset_without_samples_is_rebuilt_as_compressed_as_its_parts(tmp_path: Path) -> None:
    write_parts(tmp_path, [], 2, compression="zstd")
    before = (tmp_path / "index.json").read_bytes()
    (tmp_path / "index.json").unlink()
    repaired(tmp_path)
    assert (tmp_path / "index.json").read_bytes() == before


def test_metadata_on_which_the_parts_agree_is_kept(tmp_path: Path) -> None:
    write_parts(tmp_path, WRITTEN, 2, metadata={"a": 1})
    before = (tmp_path / "index.json").read_bytes()
    (tmp_path / "index.json").unlink()
    repaired(tmp_path)
    assert (tmp_path / "index.json").read_bytes() == before


@pytest.mark.parametrize("compression", STORED)
def test_a_damaged_index_is_repaired_or_left_unchanged(compression: str | None, tmp_path: Path, often: Often) -> None:
    """`repair` cannot recognise damaged metadata, so it writes nothing unless the caller drops or gives metadata."""
    write(tmp_path, WRITTEN[:20], shard_size=1500, compression=compression, metadata={"made by": "us", "n": [1, None]})
    index = tmp_path / "index.json"
    before = index.read_bytes()
    start = before.index(b'"metadata":')
    metadata = range(start - 1, start + len('"metadata":{"made by":"us","n":[1,null]},"checksum":"'))
    for place in range(0, len(before), 5 // often(1, long=5)):
        damaged = bytearray(before)
        damaged[place] ^= 1 << place % 8
        index.write_bytes(damaged)
        done = mdsx.repair(tmp_path)
        assert (done.needed, done.index) == (True, "damaged"), place
        if done.written:
            assert index.read_bytes() == before, place
            assert Path(str(done.old_index)).read_bytes() == damaged
        else:
            assert place in metadata, place
            assert index.read_bytes() == damaged


def test_damaged_metadata_is_dropped_only_on_request(dataset: Path) -> None:
    index = dataset / "index.json"
    undamaged = index.read_bytes()
    damaged = undamaged.replace(b"made by", b"made bY")
    index.write_bytes(damaged)
    before = contents(dataset)
    plan = mdsx.repair(dataset)
    assert (plan.written, plan.drops, plan.proven, plan.damaged) == (False, True, False, [])
    assert contents(dataset) == before
    done = repaired(dataset, drop_damaged=True)
    assert index_of(dataset).metadata == {}
    assert Path(str(done.old_index)).read_bytes() == damaged
    assert read(dataset) == WRITTEN


def test_a_truncated_index_is_not_trusted(plain: Path) -> None:
    index = plain / "index.json"
    before = index.read_bytes()
    for size in range(0, len(before), 50):
        index.write_bytes(before[:size])
        assert not mdsx.repair(plain).written
        assert index.read_bytes() == before[:size]
    repaired(plain, drop_damaged=True)
    assert index.read_bytes() == before


def test_a_damaged_index_shows_a_missing_last_shard(plain: Path) -> None:
    """Names alone do not show how many shards existed; the checksum of the damaged index does."""
    flip(plain / "index.json", 100)
    shards(plain)[-1].unlink()
    plan = mdsx.repair(plain)
    assert (plan.written, plan.drops, plan.damaged) == (False, True, [])


# --- damaged shards


def test_random_damage_costs_only_the_samples_it_touches(tmp_path: Path, often: Often) -> None:
    write(tmp_path / "undamaged", WRITTEN)
    undamaged = plain_shards(tmp_path / "undamaged")
    rng = random.Random(11)
    for round in range(often(10, long=600)):
        root = tmp_path / str(round)
        shutil.copytree(tmp_path / "undamaged", root)
        gone = set[int]()
        for where in rng.sample(undamaged, rng.randint(1, len(undamaged))):
            path, data, kind = root / where.path.name, bytearray(where.stored), rng.randrange(5)
            if kind == 0:
                path.unlink()
                gone |= where.lost(range(len(data)))
                continue
            if kind == 1:
                size = rng.randrange(len(data))
                gone |= where.lost(range(size, len(data)))
                del data[size:]
            elif kind == 2:
                data += rng.randbytes(rng.randint(1, 5000))
            elif kind == 3:
                start = rng.randrange(len(data))
                stop = min(len(data), start + rng.choice([1, 2, 100, 512, 4096]))
                changed = bytes(byte ^ rng.randint(1, 255) for byte in data[start:stop])
                gone |= where.lost(range(start, stop))
                data[start:stop] = changed
            else:
                places = rng.sample(range(len(data)), rng.randint(1, 3))
                gone |= where.lost(places)
                for place in places:
                    data[place] ^= 1 << rng.randrange(8)
            path.write_bytes(data)
        expect(root, gone, f"round {round}")


def expect(root: Path, gone: set[int], what: str) -> None:
    """Check that a repair lost only these samples and changed only the index."""
    left = [sample for number, sample in enumerate(WRITTEN) if number not in gone]
    before = contents(root)
    if not left:
        with pytest.raises(mdsx.CorruptError, match="no sample of the dataset is undamaged"):
            mdsx.repair(root, drop_damaged=True)
        return
    plan = mdsx.repair(root)
    assert plan.lost_samples == len(gone), what
    assert plan.written != bool(plan.drops), what
    if plan.drops:
        assert contents(root) == before, what
        plan = repaired(root, drop_damaged=True)
    assert list(mdsx.verify(root)) == [], what
    assert read(root) == left, what
    lost = {
        n
        for shard in plan.damaged
        if shard.first is not None
        for a, b in shard.lost
        for n in range(shard.first + a, shard.first + b)
    }
    assert lost == gone, what
    after = contents(root)
    assert {name: after[name] for name in before if name != "index.json"} == {
        name: data for name, data in before.items() if name != "index.json"
    }, what
    kept = {name: data for name, data in after.items() if name.startswith("index.before-repair-")}
    assert list(kept.values()) == [before["index.json"]], what


class Frames(NamedTuple):
    """A stored shard: the end of each frame, and the numbers of its samples in the dataset."""

    name: str
    stored: bytes
    raw: bytes
    ends: list[int]
    samples: list[set[int | None]]


LARGE = samples(100, blob=100_000)


@pytest.fixture(scope="module")
def compressed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Frames]]:
    """A dataset of shards of several frames."""
    root, found = tmp_path_factory.mktemp("frames"), []
    write(root / "plain", LARGE, shard_size="2500KiB")
    write(root / "zstd", LARGE, shard_size="2500KiB", compression="zstd:1")
    for path, where in zip(shards(root / "zstd"), plain_shards(root / "plain"), strict=True):
        stored, count, ends = path.read_bytes(), -(-len(where.stored) // FRAME), [0]
        for number in range(count):
            at = len(stored) - 8 * count - 9 + 8 * number
            ends.append(ends[-1] + int.from_bytes(stored[at : at + 4], "little"))
        touched = [{*where.whose[at : at + FRAME]} - {None} for at in range(0, len(where.whose), FRAME)]
        found.append(Frames(path.name, stored, where.stored, ends, touched))
    return root / "zstd", found


def test_damaged_frames_cost_only_their_samples(
    compressed: tuple[Path, list[Frames]], tmp_path: Path, often: Often
) -> None:
    source, stored = compressed
    rng = random.Random(13)
    for round in range(often(4, long=100)):
        root, gone = tmp_path / str(round), set[int | None]()
        shutil.copytree(source, root)
        for shard in stored:
            data, ends = bytearray(shard.stored), shard.ends
            for frame in rng.sample(range(len(ends) - 1), rng.randrange(min(3, len(ends)))):
                data[rng.randrange(ends[frame], ends[frame + 1])] ^= 1 << rng.randrange(8)
                raw = shard.raw[frame * FRAME : (frame + 1) * FRAME]
                gone |= set() if holds(data[ends[frame] : ends[frame + 1]], raw) else shard.samples[frame]
            if rng.random() < 0.3:
                data[rng.randrange(ends[-1], len(data))] ^= 1 << rng.randrange(8)
            (root / shard.name).write_bytes(data)
        if len(gone) == len(LARGE):
            refused(root, mdsx.CorruptError, "no sample of the dataset is undamaged")
            continue
        done = mdsx.repair(root, drop_damaged=True)
        assert list(mdsx.verify(root)) == []
        assert done.lost_samples == len(gone)
        assert read(root) == [sample for number, sample in enumerate(LARGE) if number not in gone]


def test_lossless_repairs_need_no_permission(plain: Path) -> None:
    """Header and padding follow from the rest: the new shard has the original bytes."""
    undamaged = shards(plain)[1].read_bytes()
    flip(shards(plain)[1], 20)
    done = repaired(plain)
    assert (done.drops, done.lost_samples) == (False, 0)
    assert done.fingerprint == done.was
    assert (plain / "repaired.shard.00001.mdsx").read_bytes() == undamaged
    assert read(plain) == WRITTEN


def test_a_seek_table_is_repaired_without_loss(tmp_path: Path) -> None:
    write(tmp_path, WRITTEN, compression="zstd")
    flip(shards(tmp_path)[1], -1)
    done = repaired(tmp_path)
    assert (done.drops, done.fingerprint) == (False, done.was)
    assert read(tmp_path) == WRITTEN


def test_other_compressed_bytes_are_repaired_without_loss(tmp_path: Path) -> None:
    write(tmp_path, WRITTEN, compression="zstd:3")
    write(tmp_path / "other", WRITTEN, compression="zstd:19")
    shutil.copy(tmp_path / "other" / "shard.00001.mdsx.zst", tmp_path)
    done = repaired(tmp_path)
    assert (done.drops, done.fingerprint) == (False, done.was)


def test_a_shard_of_other_samples_is_never_trusted(tmp_path: Path) -> None:
    """All of its rows have the right checksums for their own row key."""
    columns = {"number": "int64"}
    with mdsx.Writer(tmp_path, columns, shard_size=1000) as out:
        out.write_batch({"number": range(200)})
    first, second, *_ = shards(tmp_path)
    one, two = first.read_bytes(), second.read_bytes()
    first.write_bytes(two)
    second.write_bytes(one)
    count = int(index_of(tmp_path).counts[0])
    done = repaired(tmp_path, drop_damaged=True)
    assert [shard.lost for shard in done.damaged] == [((0, count),)] * 2
    assert "but shard.00001.mdsx" in str(done.damaged[0].problems[0])
    assert [sample["number"] for sample in read(tmp_path)] == list(range(2 * count, 200))


def test_a_completely_lost_shard_leaves_the_index(plain: Path) -> None:
    shards(plain)[2].unlink()
    counts = index_of(plain).counts.tolist()
    done = repaired(plain, drop_damaged=True)
    start = sum(counts[:2])
    assert read(plain) == WRITTEN[:start] + WRITTEN[start + counts[2] :]
    assert done.damaged[0].replacement is None
    assert done.shards == len(counts) - 1


def test_a_repaired_shard_can_be_damaged_and_repaired_again(plain: Path) -> None:
    for name, place in (
        ("shard.00001.mdsx", -1),
        ("repaired.shard.00001.mdsx", -1),
        ("repaired-2.shard.00001.mdsx", -1),
    ):
        flip(plain / name, place)
        repaired(plain, drop_damaged=True)
    assert (plain / "repaired-3.shard.00001.mdsx").exists()
    last = sum(index_of(plain).counts.tolist()[:2]) + 2
    assert read(plain) == WRITTEN[: last - 2] + WRITTEN[last + 1 :]
    assert len(list(plain.glob("index.before-repair-*"))) == 3


def test_a_repair_uses_no_existing_name(plain: Path) -> None:
    (plain / "repaired.shard.00001.mdsx").write_bytes(b"of somebody else")
    flip(shards(plain)[1], -1)
    repaired(plain, drop_damaged=True)
    assert (plain / "repaired.shard.00001.mdsx").read_bytes() == b"of somebody else"
    assert index_of(plain).name(1) == "repaired-2.shard.00001.mdsx"


def test_a_part_is_repaired_in_its_folder(tmp_path: Path) -> None:
    write_parts(tmp_path, WRITTEN, 2)
    flip(tmp_path / "part-00001" / "shard.00000.mdsx", -1)
    repaired(tmp_path, drop_damaged=True)
    assert (tmp_path / "part-00001" / "repaired.shard.00000.mdsx").exists()
    assert len(read(tmp_path)) == 199


# --- no index, and damaged shards


def test_without_an_index_the_header_gives_the_layout(plain: Path) -> None:
    (plain / "index.json").unlink()
    flip(shards(plain)[1], -1)
    before = contents(plain)
    plan = mdsx.repair(plain)
    assert (plan.written, plan.drops, plan.lost_samples) == (False, True, 1)
    assert contents(plain) == before
    repaired(plain, drop_damaged=True)
    assert len(read(plain)) == 199


def test_without_an_index_the_first_frame_gives_the_layout(tmp_path: Path) -> None:
    write(tmp_path, WRITTEN, compression="zstd")
    (tmp_path / "index.json").unlink()
    flip(shards(tmp_path)[1], -20)  # in the seek table
    done = repaired(tmp_path)
    assert (done.index, done.drops) == ("missing", False)
    assert read(tmp_path) == WRITTEN


def test_without_an_index_random_damage_loses_the_least(plain: Path, tmp_path: Path, often: Often) -> None:
    """A header with damaged sizes or columns costs the shard; other damage costs the samples that it touches."""
    undamaged, rng = plain_shards(plain), random.Random(17)
    for round in range(often(5, long=200)):
        root = tmp_path / str(round)
        shutil.copytree(plain, root)
        (root / "index.json").unlink()
        where = rng.choice(undamaged)
        place = rng.randrange(len(where.stored))
        flip(root / where.path.name, place, 1 << rng.randrange(8))
        layout = {*range(12, 24), *range(32, 56), *range(64, 64 + len(index_of(plain).schema.json))}
        gone = where.lost(range(len(where.stored)) if place in layout else [place])
        repaired(root, drop_damaged=True)
        left = [sample for number, sample in enumerate(WRITTEN) if number not in gone]
        assert read(root) == left or (place in range(48, 56) and read(root) == WRITTEN), (place, where.path)


def test_a_repair_survives_the_loss_of_the_index(plain: Path) -> None:
    flip(shards(plain)[1], -1)
    repaired(plain, drop_damaged=True)
    after = (plain / "index.json").read_bytes()
    (plain / "index.json").unlink()
    repaired(plain)
    assert (plain / "index.json").read_bytes() == after


def test_a_restored_original_replaces_its_repair(plain: Path) -> None:
    index, shard = (plain / "index.json").read_bytes(), shards(plain)[1].read_bytes()
    flip(shards(plain)[1], -1)
    repaired(plain, drop_damaged=True)
    shards(plain)[1].write_bytes(shard)
    (plain / "index.json").unlink()
    repaired(plain)
    assert (plain / "index.json").read_bytes() == index


def test_a_missing_number_is_a_lost_shard(plain: Path) -> None:
    (plain / "index.json").unlink()
    shards(plain)[1].unlink()
    plan = mdsx.repair(plain)
    assert (plan.written, plan.drops) == (False, True)
    (damaged,) = plan.damaged
    assert (damaged.file, damaged.samples) == (f"{plain}/shard.00001.mdsx", None)
    repaired(plain, drop_damaged=True)


# --- what is refused


def refused(root: Path, kind: type[mdsx.MdsxError], says: str) -> None:
    before = contents(root)
    with pytest.raises(kind, match=says):
        mdsx.repair(root, drop_damaged=True)
    assert contents(root) == before


def test_repair_refuses_an_unfinished_dataset(tmp_path: Path) -> None:
    with suppress(RuntimeError), mdsx.Writer(tmp_path, COLUMNS, shard_size=3000) as out:
        for sample in WRITTEN:
            out.write(sample)
        raise RuntimeError
    refused(tmp_path, mdsx.UsageError, "unfinished.*resume=True")


def test_repair_refuses_an_unfinished_part(tmp_path: Path) -> None:
    write_parts(tmp_path, WRITTEN, 2)
    (tmp_path / "index.json").unlink()
    (tmp_path / "part-00001" / "index.json").unlink()
    (tmp_path / "part-00001" / "_mdsx").mkdir()
    (tmp_path / "part-00001" / "_mdsx" / "writer.json").write_text("{}")
    refused(tmp_path, mdsx.UsageError, "part-00001: the dataset is unfinished.*resume=True")


def test_repair_refuses_an_unfinished_conversion(plain: Path) -> None:
    (plain / "index.json").unlink()
    (plain / "_convert").mkdir()
    (plain / "_convert" / "plan.json").write_text("{}")
    refused(plain, mdsx.UsageError, "unfinished.*mdsx convert")


def test_the_index_of_a_conversion_that_skipped_samples_is_made_again(plain: Path) -> None:
    """The list of what it skipped stays for good, and says nothing of a writer at work."""
    (plain / "_convert").mkdir()
    (plain / "_convert" / "skipped.json").write_text("[]")
    (plain / "index.json").unlink()
    mdsx.repair(plain)
    assert len(mdsx.Dataset(plain)[:]) == len(WRITTEN)


def test_shards_that_do_not_belong_together_are_reported(plain: Path, tmp_path: Path) -> None:
    (plain / "index.json").unlink()
    with mdsx.Writer(tmp_path / "other", {"other": "int8"}) as out:
        out.write({"other": 1})
    shutil.copy(tmp_path / "other" / "shard.00000.mdsx", plain / "shard.00001.mdsx")
    refused(plain, mdsx.UsageError, "different columns.*shard.00000.mdsx.*shard.00001.mdsx")


def test_compressed_shards_among_others_are_reported(plain: Path) -> None:
    (plain / "index.json").unlink()
    (plain / "shard.00001.mdsx.zst").write_bytes(compress((plain / "shard.00001.mdsx").read_bytes()))
    refused(plain, mdsx.UsageError, "some shards are compressed.*shard.00001.mdsx.zst")


def test_a_missing_part_is_reported(tmp_path: Path) -> None:
    write_parts(tmp_path, WRITTEN, 3)
    (tmp_path / "index.json").unlink()
    shutil.rmtree(tmp_path / "part-00001")
    refused(tmp_path, mdsx.MissingError, "parts are missing.*part-00001")


def test_a_huge_shard_number_takes_no_time(plain: Path) -> None:
    (plain / "index.json").unlink()
    shutil.copy(plain / "shard.00000.mdsx", plain / "shard.99999999999.mdsx")
    refused(plain, mdsx.UsageError, "most of the numbered files before it are missing")


def test_a_place_without_a_dataset_raises(tmp_path: Path) -> None:
    refused(tmp_path, mdsx.MissingError, "no dataset is here")


def test_an_index_of_a_later_version_is_not_damaged(plain: Path) -> None:
    index = plain / "index.json"
    later = bytearray(index.read_bytes().replace(b'"version":1', b'"version":2'))
    later[-19:-3] = b"0123456789abcdef"
    index.write_bytes(later)
    refused(plain, mdsx.UnsupportedError, "upgrade mdsx")


def test_shards_of_a_later_minor_version_are_not_rewritten(tmp_path: Path) -> None:
    shard = (Path(__file__).parents[2] / "vectors" / "good" / "minor-1-largest-header.mdsx").read_bytes()
    (tmp_path / "shard.00000.mdsx").write_bytes(shard)
    refused(tmp_path, mdsx.UnsupportedError, "later minor version.*upgrade mdsx")


def test_a_dataset_without_an_undamaged_shard_is_unchanged(dataset: Path) -> None:
    for path in shards(dataset):
        path.unlink()
    refused(dataset, mdsx.CorruptError, "no sample of the dataset is undamaged.*write it again")


def test_unreadable_storage_is_no_damage(plain: Path) -> None:
    """A storage error says nothing about the bytes, so no sample may be dropped for it."""
    path = shards(plain)[1]
    path.unlink()
    path.mkdir()
    refused(plain, mdsx.TransportError, "the disk failed")


def test_reads_that_break_off_are_no_damage(proxy: Proxy, s3_url: str) -> None:
    write(s3_url, WRITTEN)
    index, rule = open_storage(s3_url).get("index.json").data, proxy.add(cut(0), key="*/shard.00001.mdsx")
    with pytest.raises(mdsx.TruncatedError, match=r"shard\.00001\.mdsx"):
        mdsx.repair(s3_url, drop_damaged=True)
    assert rule.hits
    assert open_storage(s3_url).get("index.json").data == index


# --- concurrent changes


def test_an_index_replaced_during_a_repair_stays(plain: Path) -> None:
    flip(shards(plain)[1], -1)
    other = (plain / "index.json").read_bytes()[:-10]

    def meddle(progress: object) -> None:
        (plain / "index.json").write_bytes(other)

    with pytest.raises(mdsx.ChangedError, match="the index was replaced"):
        mdsx.repair(plain, drop_damaged=True, watch=meddle)
    assert (plain / "index.json").read_bytes() == other


def test_an_index_that_appears_during_a_repair_stays(plain: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (plain / "index.json").unlink()

    def meddle(storage: Storage, key: str) -> None:
        (plain / key).write_bytes(b"another")

    monkeypatch.setattr(importlib.import_module("mdsx.checks.damage.repair"), "discard", meddle)
    with pytest.raises(mdsx.ChangedError):
        mdsx.repair(plain)
    assert (plain / "index.json").read_bytes() == b"another"


def test_a_shard_changed_during_a_repair_is_not_replaced(plain: Path) -> None:
    path, before = shards(plain)[1], (plain / "index.json").read_bytes()
    flip(path, -1)
    last = len(shards(plain))

    def meddle(progress: mdsx.Progress) -> None:
        if progress.shards == last:
            flip(path, 500)

    with pytest.raises(mdsx.ChangedError, match="changed while it was read"):
        mdsx.repair(plain, drop_damaged=True, watch=meddle)
    assert (plain / "index.json").read_bytes() == before


# --- S3


@pytest.mark.parametrize("compression", STORED)
def test_repair_works_on_s3(s3_url: str, compression: str | None) -> None:
    url = f"{s3_url}/x"
    write(url, WRITTEN, compression=compression)
    storage = open_storage(url)
    names = [entry.key for entry in storage.list("shard.")]
    index = storage.get("index.json").data
    storage.delete("index.json")
    repaired(url)
    assert storage.get("index.json").data == index
    data = bytearray(storage.get(names[0]).data)
    data[20] ^= 1  # in the header, or the only frame
    storage.put(names[0], data)
    storage.put(names[1], storage.get(names[1]).data[:-1])
    storage.put(names[2], storage.get(names[2]).data + b"!")
    storage.delete(names[3])
    assert not mdsx.repair(url).written
    done = repaired(url, drop_damaged=True)
    assert len(done.damaged) == 4
    assert len(read(url)) == 200 - done.lost_samples
    assert storage.get(names[0]).data == bytes(data)
    assert done.old_index is not None
    assert storage.get(done.old_index.removeprefix(f"{url}/")).data == index
