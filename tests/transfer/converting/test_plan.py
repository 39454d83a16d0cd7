"""A plan divides units into parts by the source alone, and recognizes another conversion."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mdsx import CorruptError
from mdsx.transfer.converting.files import File
from mdsx.transfer.converting.plan import MAX_PARTS, ConversionPlan, decode_plan, encode_plan
from mdsx.transfer.converting.source import Unit
from tests.transfer.converting.numbers import Numbers


def plan(tars: int = 3, parts: int = 1) -> ConversionPlan:
    files = tuple(File(f"/x/{tar}.tar", 1000 + tar, f"etag {tar}", f"content {tar}") for tar in range(tars))
    units = tuple(Unit(tar, 0, 1000 + tar, 1000 + tar) for tar in range(tars))
    settings = {"nan": "error", "key_until": "first-dot", "rename": {}, "drop": []}
    return ConversionPlan(
        "/out", "tar", files, units, settings, {"__key__": "str", "txt": "str"}, 2**20, None, "raise", parts
    )


def with_setting(name: str, value: object) -> ConversionPlan:
    return replace(plan(), settings={**plan().settings, name: value})


def with_last(url: str, etag: str, content: str) -> ConversionPlan:
    """Return the plan with another last file."""
    return replace(plan(), files=(*plan().files[:2], File(url, 1002, etag, content)))


@settings(deadline=None)
@given(tars=st.integers(1, 300), parts=st.integers(1, MAX_PARTS))
def test_parts_are_contiguous_runs_of_all_units(tars: int, parts: int) -> None:
    parts = min(parts, tars)
    divided_plan = plan(tars, parts)
    divided = [divided_plan.part_units(part) for part in range(parts)]
    assert tuple(unit for units in divided for unit in units) == divided_plan.units
    assert max(map(len, divided)) - min(map(len, divided)) <= 1


@pytest.mark.parametrize(
    ("units", "size", "parts"), [(1, 10**6, 1), (100, 10, 1), (100, 1000, 10), (100, 10**6, 100), (1000, 10**6, 256)]
)
def test_a_part_has_a_shard_at_least_on_average(units: int, size: int, parts: int) -> None:
    """Their number depends on the source and the size of shards, not on processes."""
    source = Numbers(units, size)
    made = ConversionPlan.of(source, "/out", {"x": "int64"}, shard_size=10_000, compression=None, on_error="raise")
    assert made.parts == parts


def test_one_part_is_the_output_itself() -> None:
    assert plan().part_url(0) == "/out"
    assert plan(parts=3).part_url(2) == "/out/part-00002"


def test_a_plan_survives_encoding() -> None:
    assert decode_plan(encode_plan(plan()), file="x") == plan()
    for damaged in (encode_plan(plan())[:-5], encode_plan(plan()).replace(b"tar", b"\xf4ar")):
        with pytest.raises(CorruptError, match="x: not a conversion's plan"):
            decode_plan(damaged, file="x")


@pytest.mark.parametrize(
    ("other", "difference"),
    [
        (replace(plan(), on_error="skip", parts=3, out="/elsewhere"), None),
        (replace(plan(), shard_size=5), "shard_size 5, not 1048576"),
        (replace(plan(), compression="zstd"), "compression zstd, not None"),
        (with_setting("nan", "null"), "nan null, not error"),
        (with_setting("key_until", "last-dot"), "key_until last-dot, not first-dot"),
        (with_setting("rename", {"a": ["b"]}), "rename {'a': ['b']}, not {}"),
        (with_setting("drop", ["b"]), "drop ['b'], not []"),
        (plan(4), "4 files, not 3"),
        (replace(plan(), kind="jsonl"), "convert jsonl, not tar"),
        (replace(plan(), columns={"txt": "str", "__key__": "str"}), "columns {'txt"),
        (with_last("/x/2.tar", "new", "content 2"), None),
        (
            with_last("/x/2.tar", "etag 2", "new"),
            "/x/2.tar has changed, or is read in another way",
        ),
        (
            with_last("/y/2.tar", "etag 2", "content 2"),
            "/y/2.tar, not /x/2.tar",
        ),
    ],
)
def test_another_conversion_raises_naming_the_difference(other: ConversionPlan, difference: str | None) -> None:
    found = plan().difference(other)
    assert found == difference or (found and difference and found.startswith(difference))
    assert (plan().digest == other.digest) == (difference is None)
