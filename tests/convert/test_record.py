"""A plan divides tars into parts by their number alone, and recognizes another conversion."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mdsx import CorruptError
from mdsx.convert.record import MAX_PARTS, Plan, decode_plan, encode_plan, parts_for
from mdsx.convert.sources import Source
from mdsx.convert.webdataset import Names


def plan(tars: int = 3, parts: int = 1) -> Plan:
    sources = tuple(Source(f"/x/{tar}.tar", 1000 + tar, f"etag {tar}", f"content {tar}") for tar in range(tars))
    return Plan("/out", sources, {"__key__": "str", "txt": "str"}, 2**20, None, Names(), "error", "raise", parts)


def with_last(url: str, etag: str, content: str) -> Plan:
    """Return the plan with another last source."""
    return replace(plan(), sources=(*plan().sources[:2], Source(url, 1002, etag, content)))


@settings(deadline=None)
@given(tars=st.integers(1, 300), parts=st.integers(1, MAX_PARTS))
def test_parts_are_contiguous_runs_of_all_tars(tars: int, parts: int) -> None:
    parts = min(parts, tars)
    divided_plan = plan(tars, parts)
    divided = [divided_plan.part_sources(part) for part in range(parts)]
    assert tuple(source for sources in divided for source in sources) == divided_plan.sources
    assert max(map(len, divided)) - min(map(len, divided)) <= 1


def test_the_number_of_processes_changes_no_parts() -> None:
    assert [parts_for(100, processes) for processes in (1, 2, 3, 64)] == [1, 100, 100, 100]
    assert parts_for(1, 8) == 1
    assert parts_for(10_000, 8) == MAX_PARTS


def test_one_part_is_the_output_itself() -> None:
    assert plan().part_url(0) == "/out"
    assert plan(parts=3).part_url(2) == "/out/part-00002"


def test_a_plan_survives_encoding() -> None:
    assert decode_plan(encode_plan(plan()), file="x") == plan()
    with pytest.raises(CorruptError, match="not a conversion's plan"):
        decode_plan(encode_plan(plan())[:-5], file="x")


@pytest.mark.parametrize(
    ("other", "difference"),
    [
        (replace(plan(), on_error="skip", parts=3, out="/elsewhere"), None),
        (replace(plan(), shard_size=5), "shard_size 5, not 1048576"),
        (replace(plan(), compression="zstd"), "compression zstd, not None"),
        (replace(plan(), nan="null"), "nan null, not error"),
        (replace(plan(), names=Names("last-dot")), "key_until last-dot, not first-dot"),
        (replace(plan(), names=Names(rename={"a": ("b",)})), "rename {'a': ('b',)}, not {}"),
        (replace(plan(), names=Names(drop=("b",))), "drop ('b',), not ()"),
        (plan(4), "4 tars, not 3"),
        (replace(plan(), columns={"txt": "str", "__key__": "str"}), "columns {'txt"),
        (with_last("/x/2.tar", "new", "content 2"), None),
        (
            replace(plan(), sources=(*plan().sources[:2], Source("/x/2.tar", 1002, "etag 2", "new"))),
            "/x/2.tar has changed",
        ),
        (
            replace(plan(), sources=(*plan().sources[:2], Source("/y/2.tar", 1002, "etag 2", "content 2"))),
            "/y/2.tar, not /x/2.tar",
        ),
    ],
)
def test_another_conversion_raises_naming_the_difference(other: Plan, difference: str | None) -> None:
    found = plan().difference(other)
    assert found == difference or (found and difference and found.startswith(difference))
    assert (plan().digest == other.digest) == (difference is None)
