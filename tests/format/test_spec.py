"""The worked examples of format-spec.md are the files of tests/vectors, byte for byte."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
import xxhash

from mdsx.base import strict_json
from mdsx.format import conditions, filenames, frames, index, rows, schema, shard, types
from mdsx.order import Grouping
from mdsx.stream import Cursor
from mdsx.stream.group_state import GroupIdentity
from tests.vectors import generate

SPEC = (Path(__file__).parents[2] / "format-spec.md").read_text(encoding="utf-8")
GOOD = Path(generate.__file__).parent / "good"


def block(name: str) -> list[str]:
    """Return the lines of the fenced block of that name."""
    match = re.search(rf"^```\w+ {name}\n(.*?)^```", SPEC, re.DOTALL | re.MULTILINE)
    assert match
    return match[1].splitlines()


def hexadecimal(lines: list[str]) -> bytes:
    """Return the bytes of lines such as `12  40 00  header size`; the offset may be missing."""
    found = [re.match(r"(?:\s*\d+  )?((?:[0-9a-f]{2} ?)+)", line) for line in lines]
    return bytes.fromhex("".join(match[1] for match in found if match))


def test_the_worked_shard_is_the_golden_file() -> None:
    lines = block("worked")
    shard = (GOOD / "worked.mdsx").read_bytes()
    assert hexadecimal(lines) == shard
    at = 0
    for line in lines:
        if match := re.match(r"\s*(\d+)  (?=[0-9a-f]{2} )", line):
            assert int(match[1]) == at
            at += len(hexadecimal([line]))


def test_the_worked_seek_table_is_the_golden_files() -> None:
    table = hexadecimal(block("zstd-table"))
    assert len(table) == 25
    assert (GOOD / "zstd/shard.00002.mdsx.zst").read_bytes().endswith(table)


def test_the_worked_index_is_the_golden_file() -> None:
    assert "".join(block("plain-index")) + "\n" == (GOOD / "plain/index.json").read_text(encoding="utf-8")


def test_the_worked_trailer_of_lengths_is_the_golden_files() -> None:
    data = (GOOD / "plain" / "_lengths" / "text.u32").read_bytes()
    assert "".join(block("plain-lengths")) + "\n" == data[20:].decode()


def test_the_worked_selection_is_in_the_vectors() -> None:
    vectors = json.loads((GOOD.parent / "selections-v1.json").read_text())
    assert "".join(block("plain-selection")) + "\n" == vectors["files"][0]["text"]


def test_the_worked_state_is_in_the_vectors() -> None:
    vectors = json.loads((GOOD.parent / "runs-v1.json").read_text())
    assert json.loads("".join(block("state"))) in [vector["value"] for vector in vectors["state"]]


def test_the_worked_state_of_groups_is_the_codes() -> None:
    state = json.loads("".join(block("groups-state")))["groups"]
    lengths = np.array([7, 2, 12, 5, 3, 4, 0, 6, 9, 1, 10, 3, 8, 2], "<u4")
    identity = GroupIdentity(
        Grouping("pack", 10, 4, "split"), {"hash": xxhash.xxh3_128_hexdigest(lengths.tobytes())}, None
    )
    assert json.dumps(state) == json.dumps(identity.state(Cursor(taken=4)))


@pytest.mark.parametrize(
    ("limit", "text"),
    [
        (schema.MAX_NAME_SIZE == 255, "| column name | 1 to 255 bytes |"),
        (schema.MAX_SCHEMA_SIZE == 2**20, "| schema | 1 MiB; at least one column |"),
        (types.MAX_DIMENSIONS == 8, "| dimensions of a type | 8; "),
        (schema.MAX_ROW_SIZE == 2**31 - 1, "| row | below 2^31 bytes |"),
        (rows.NULL == 2**32 - 1, "| value of a variable-size column | 2^32 - 2 bytes |"),
        (shard.MAX_HEADER_SIZE == 4096, "| header | 64 to 4096 bytes |"),
        (shard.MAX_SIZE == 2**63 - 1, "| shard | below 2^63 bytes |"),
        (frames.MAX_FRAMES == 2**27, "| compressed shard | 2^27 frames"),
        (frames.MAX_FRAME_SIZE == 2**20 + 2**16, "a frame has at most 2^20 + 2^16 bytes |"),
        (frames.MAX_WINDOW == 2**23, "| zstd window | 8 MiB |"),
        (filenames.MAX_NAME_SIZE == 512, "| file name in the index | 512 bytes |"),
        (conditions.MAX_CONDITION == 2**20, "| condition of a selection | 2^20 characters; "),
        (index.MAX_SHARDS == 2**22, "| shards of a dataset | 2^22; "),
        (index.MAX_METADATA_SIZE == 2**20, "| metadata | 1 MiB; "),
        (strict_json.MAX_DEPTH == 500, "| nesting of `json` and `msgpack` | 500 levels"),
    ],
)
def test_the_specifications_limits_are_the_codes(limit: bool, text: str) -> None:
    assert limit
    assert text in SPEC


def test_every_file_named_in_the_specification_exists() -> None:
    root = Path(__file__).parents[2]
    for name in re.findall(r"`(tests/vectors/[^`]*)`", SPEC):
        assert (root / name).exists(), name


def test_links_in_the_specification_have_targets() -> None:
    anchors = {
        re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in re.findall(r"^#+ (.*)$", SPEC, re.M)
    }
    for anchor in re.findall(r"\]\(#([^)]*)\)", SPEC):
        assert anchor in anchors


def test_sections_that_texts_name_exist() -> None:
    """In the specification: "(4.2)", "section 5", "see 3.3"; on the writers' page: "format-spec.md, 4.4"."""
    sections = {title.rstrip(".") for title in re.findall(r"^#{2,3} ([0-9.]+) ", SPEC, re.M)}
    protocol = (Path(__file__).parents[2] / "docs" / "writers-protocol.md").read_text(encoding="utf-8")
    text = re.sub(r"^```.*?^```|`[^`\n]*`", "", SPEC, flags=re.DOTALL | re.M)
    named = re.findall(r"(?:\(|section |see |of |in )([1-9][0-9]?\.[1-9])\b(?!\.)", text)
    named += re.findall(r"section ([1-9][0-9]?)\b", text) + re.findall(r"format-spec\.md, ([0-9.]+)\b", protocol)
    assert len(named) > 40
    assert {*named} <= sections
