"""The numbers of a large run: what is computed equals a count by brute force, and the index is measured, in small."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from mdsx.format import MAX_SHARDS, Schema, ShardEntry, build_index, filenames
from mdsx.order import DatasetCourse, Order, active_shards
from tests.tools import ROOT, TOOLS
from tools.scale import growth, index
from tools.scale.job import Job
from tools.scale.made import COLUMNS, folders
from tools.scale.plan import counts_of, index_bytes, reads_of, sections

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
            positions, _ = course.rank_ticks(starts[:-1], stops[:-1], rank, world)  # the last batch is a short one
            mine.update(course.locate(positions)[0].tolist())
        read.append(len(mine))
    shards, at_once = reads_of(order, NODES, RANKS, BATCH * lanes)
    own = [
        [lane for lane in range(lanes) if lane * NODES // lanes == node] or [node * lanes // NODES]
        for node in range(NODES)
    ]
    drawn = [max(active_shards(order, position, some) for position in range(0, len(order), 3)) for some in own]
    assert all(0 <= more <= 2 for more in (shards - read).tolist())  # those of the short batch
    assert all(0 <= more <= len(some) for more, some in zip((at_once - drawn).tolist(), own, strict=True))


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
    tables = dict(sections(job, shard_sizes=[2**16, 128 * 2**20]))
    assert "| an epoch | 250,000 steps, 0.3 days |" in tables["run"]
    assert "| read | 0.04 GB/s by all nodes, 20 MB/s by each |" in tables["run"]
    shards = -(-(10**7) // (128 * 2**20 // 100_000))
    assert f"| 0 MiB | 10,000,000 | more than {MAX_SHARDS:,}: refused |" in tables["sizes"]
    assert f"| 128 MiB | {shards:,} |" in tables["sizes"]


@pytest.mark.slow
def test_a_rank_opens_reads_and_continues_with_and_without_workers() -> None:
    tables = dict(index.sections(sizes=[500]))
    assert "| 500 |" in tables["build"]
    assert [line.split(" | ")[1] for line in tables["open"].splitlines()[2:]] == ["0", "4"]


@pytest.mark.slow
def test_each_axis_of_growth_is_measured(tmp_path: Path) -> None:
    for axis in growth.AXES:
        sizes = [size for size in axis.sizes if size <= 1000][:2]
        *_, (name, text) = growth.sections([replace(axis, sizes=sizes)], tmp_path)
        assert name == f"growth-{axis.name}"
        assert [line.split()[1] for line in text.splitlines()[2:]] == [f"{size:,}" for size in sizes]
        assert f">{sizes[-1]:,}</text>" in (tmp_path / f"{name}.svg").read_text()


def test_the_command_prints_the_tables() -> None:
    small = ("--samples", "1000000", "--nodes", "2")
    done = subprocess.run([*TOOLS, "scale", "plan", *small], capture_output=True, text=True, check=True)
    assert "| samples | 1,000,000 of 100 kB" in done.stdout


def test_the_page_has_a_place_for_every_table() -> None:
    page = (ROOT / "docs" / "scale.md").read_text()
    for name in ("run", "sizes", "lanes", "build", "open", *(f"growth-{axis.name}" for axis in growth.AXES)):
        begin, end = f"<!-- scale: {name} -->\n|", f"<!-- end of scale: {name} -->"
        assert begin in page, name
        assert end in page, name
    for axis in growth.AXES:
        assert f"(pictures/growth-{axis.name}.svg)" in page
    for subject in ("plan", "index", "growth"):
        assert f"python3 -m tools scale {subject}" in page
