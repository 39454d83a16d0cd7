"""The numbers of a large run: what is computed equals a count by brute force, and each subject runs, in small."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from mdsx.errors import ChangedError, MissingError
from mdsx.format import MAX_SHARDS, Schema, ShardEntry, build_index, filenames
from mdsx.order import DatasetCourse, Order
from mdsx.order.needs import active_shards
from mdsx.storage import Storage, open_storage
from tests.tools import TOOLS
from tools.scale import clients, index, merge, start
from tools.scale.made import COLUMNS, folders, make
from tools.scale.measured import measured
from tools.scale.options import SUBJECTS, Job, Prices
from tools.scale.plan import counts_of, index_bytes, reads_of, sections
from tools.scale.server import MadeServer

ROOT = Path(__file__).parent.parent.parent
NODES, RANKS, BATCH = 4, 2, 3
COUNTS = np.array([40, 17, 25, 33, 40, 8, 29, 40, 21, 40, 36, 19] * 4) * 8


@pytest.mark.parametrize("lanes", [1, 2, NODES, NODES * RANKS, 2 * NODES * RANKS])
def test_what_a_node_reads_equals_the_count_of_every_sample(lanes: int) -> None:
    """Every sample of an epoch, where the order puts it, on the rank that gets it."""
    order, world = Order(COUNTS, seed=5, lanes=lanes, shuffle_block=512), NODES * RANKS
    course, batch = DatasetCourse(order), world * BATCH * lanes
    starts = np.arange(0, len(order), batch)
    stops = np.minimum(starts + batch, len(order))
    read = []
    for node in range(NODES):
        mine = set[int]()
        for rank in range(node * RANKS, (node + 1) * RANKS):
            positions, _ = course.rank_positions(starts[:-1], stops[:-1], rank, world)  # the last batch is a short one
            mine.update(course.locate(positions)[0].tolist())
        read.append(len(mine))
    found = reads_of(order, NODES, RANKS, BATCH * lanes)
    own = [
        [lane for lane in range(lanes) if lane * NODES // lanes == node] or [node * lanes // NODES]
        for node in range(NODES)
    ]
    drawn = [max(active_shards(order, position, some) for position in range(0, len(order), 3)) for some in own]
    assert all(0 <= more <= 2 for more in (found.shards - read).tolist())  # those of the short batch
    assert all(0 <= more <= len(some) for more, some in zip((found.open - drawn).tolist(), own, strict=True))


def test_the_index_of_attempts_has_the_size_of_a_written_one() -> None:
    job = Job(samples=10_050, sample_bytes=100)
    counts = counts_of(job, 1000)
    assert counts.sum() == job.samples
    assert len(counts) == 1005
    names = [
        f"{folder}/{filenames.shard(number, compressed=False)}"
        for part, folder in enumerate(folders(10))
        for number in range(100 + (part < 5))
    ]
    entries = [ShardEntry(name, 10, 2**63, 1000, "0" * 32, 1000, "0" * 32) for name in names]
    assert index_bytes(counts, 1000, 10) == len(build_index(Schema.from_columns(COLUMNS), None, entries))


def test_the_plan_says_what_a_person_computes() -> None:
    job = Job(samples=10**7, sample_bytes=100_000, nodes=2, ranks=4, batch=5, step=0.1)
    tables = dict(sections(job, Prices(get=1, put=10, storage=0.5, egress=0.1), shard_sizes=[2**16, 128 * 2**20]))
    assert "| an epoch | 250,000 steps, 0.3 days |" in tables["run"]
    assert "| read | 0.04 GB/s by all nodes, 20 MB/s by each |" in tables["run"]
    shards = -(-(10**7) // (128 * 2**20 // 100_000))
    assert f"| 0 MiB | 10,000,000 | more than {MAX_SHARDS:,}: refused |" in tables["sizes"]
    assert f"| 128 MiB | {shards:,} |" in tables["sizes"]
    cost = f"| 128 MiB | ${shards * 4 / 100:,.2f} | $500 | ${shards / 1000:,.2f} | $100 | $800 |"
    assert cost in tables["cost"]


# --- the server


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[MadeServer]:
    with MadeServer(300, 9, index=True) as made:
        for name, value in made.env().items():
            monkeypatch.setenv(name, value)
        yield made


def test_the_server_lists_every_object_once_in_order(server: MadeServer) -> None:
    storage: Storage = open_storage(server.url)
    storage.put("zebra", b"stored")
    storage.delete(f"{folders(1)[0]}/index.json")
    keys = [entry.key for entry in storage.list()]
    assert keys == sorted(set(keys))
    assert len(keys) == 300 * 10 + 2 - 1
    assert server.counts()["LIST"] == 4  # pages of a thousand
    assert [entry.key for entry in storage.list("part-00299")] == [key for key in keys if key.startswith("part-00299")]
    with pytest.raises(MissingError):
        storage.get(f"{folders(1)[0]}/index.json")


def test_the_server_keeps_conditions_and_ranges(server: MadeServer) -> None:
    storage: Storage = open_storage(server.url)
    shard, key = make().shard, f"{folders(300)[299]}/shard.00008.mdsx"
    assert storage.get(key, start=5, stop=9).data == shard[5:9]
    with pytest.raises(ChangedError):
        storage.create("index.json", b"another")
    etag = storage.get("index.json").etag
    storage.replace("index.json", b"another", etag=etag)
    with pytest.raises(ChangedError):
        storage.replace("index.json", b"a third", etag=etag)
    storage.put("large", bytes(65 * 2**20))  # in parts
    assert storage.get("large", start=65 * 2**20 - 1).total == 65 * 2**20


# --- the subjects, in small


def test_opening_and_loading_never_list(server: MadeServer) -> None:
    for name in ("open_dataset", "load"):
        figures = measured(f"tools.scale.listings:{name}", server, url=server.url)
        assert figures.requests["GET"] > 0
        assert "LIST" not in " ".join(figures.requests)


@pytest.mark.slow
def test_a_part_is_written_and_appended_without_listing_the_others(server: MadeServer) -> None:
    figures = measured("tools.scale.listings:append", server, url=server.url)
    assert figures.requests["LIST"] < 20
    before = server.counts()["LIST"]
    assert measured("tools.scale.listings:list_all", server, url=server.url).result > 3000
    assert server.counts()["LIST"] == before + 4


@pytest.mark.slow
def test_a_merge_reads_each_part_once(tmp_path: Path) -> None:
    merge.write(tmp_path, 20)
    assert measured("tools.scale.merge:merge", url=str(tmp_path), parts=20, shards=1).result > 1000
    for function in ("merge", "commit"):
        with MadeServer(20, 3, index=False, attempts=function == "commit") as server:
            figures = measured(f"tools.scale.merge:{function}", server, url=server.url, parts=20, shards=3)
        assert 20 <= figures.requests["GET"] <= 22  # and the index, to look at it
        assert figures.requests["LIST"] <= 10


@pytest.mark.slow
def test_each_client_opens_with_one_request() -> None:
    ((name, text),) = clients.sections(0.03)
    assert name == "clients"
    assert "| 16: 1.00 for each client |" in text
    assert "| listings | 0 |" in text


@pytest.mark.slow
def test_a_rank_opens_reads_and_continues_with_and_without_workers() -> None:
    tables = dict(index.sections(sizes=[500]))
    assert "| 500 |" in tables["build"]
    assert [line.split(" | ")[1] for line in tables["open"].splitlines()[2:]] == ["0", "4"]


@pytest.mark.slow
def test_the_first_batch_waits_for_the_link() -> None:
    *_, (name, text) = start.sections(0.001)
    assert name == "start"
    rows = [line.split(" | ") for line in text.splitlines()[2:]]
    assert [row[0] for row in rows] == ["| 0 ms", "| 1 ms", "| 30 ms", "| 100 ms"]
    assert float(rows[-1][3].removesuffix(" s")) >= 0.1  # a round trip at least


def test_the_command_prints_the_tables_and_refuses_other_subjects() -> None:
    small = ("--samples", "1000000", "--nodes", "2")
    done = subprocess.run([*TOOLS, "scale", "plan", *small], capture_output=True, text=True, check=True)
    assert "| samples | 1,000,000 of 100 kB" in done.stdout
    done = subprocess.run([*TOOLS, "scale", "other"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "unknown subject 'other'" in done.stderr


def test_the_page_has_a_place_for_every_table() -> None:
    page = (ROOT / "docs" / "scale.md").read_text()
    computed = ("run", "sizes", "lanes", "prices", "cost")
    for name in (*computed, "build", "open", "start", "merge", "listings", "clients", "cold", "limits"):
        begin, end = f"<!-- scale: {name} -->\n|", f"<!-- end of scale: {name} -->"
        assert begin in page, name
        assert end in page, name
    for subject in SUBJECTS:
        assert f"python3 -m tools scale {subject}" in page
