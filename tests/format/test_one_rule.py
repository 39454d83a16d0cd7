"""Each bad file breaks one rule: a reader made from the specification accepts it without that rule."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import xxhash

import mdsx
from tests.format import strict
from tests.format.strict import Broken, Reader, Unreadable
from tests.vectors import disagree, generate

HERE = Path(generate.__file__).parent
MANIFEST: dict[str, Any] = json.loads((HERE / "manifest.json").read_text(encoding="utf-8"))
GOOD = {file: entry for file, entry in MANIFEST["good"].items() if not file.endswith(".u32")}
BAD = MANIFEST["bad"]
CORRUPT = [file for file in BAD if BAD[file]["kind"] == "corrupt"]
DATASETS = {made.name: made for made in disagree.datasets()}


def read(file: str, entry: dict[str, Any], without: str | None = None) -> None:
    data, reader = (HERE / file).read_bytes(), Reader(without)
    if file.endswith(".json"):
        reader.index(data)
    elif file.endswith(".zst"):
        reader.frames(data, entry["raw_size"])
    else:
        reader.shard(data)


def rule_of(file: str) -> str:
    """Return the rule that a file breaks."""
    with pytest.raises(Broken) as caught:
        read(file, BAD[file])
    assert caught.value.kind == BAD[file]["kind"]
    return caught.value.rule


def read_dataset(folder: Path, without: str | None = None) -> None:
    reader = Reader(without)
    for entry in reader.index((folder / "index.json").read_bytes()):
        stored = (folder / entry["name"]).read_bytes()
        reader.rule("index: stored size", len(stored) == entry["size"] or not entry["compressed"])
        reader.rule("index: stored hash", xxhash.xxh3_128_hexdigest(stored) == entry["hash"] or not entry["compressed"])
        reader.shard(reader.frames(stored, entry["raw_size"]) if entry["compressed"] else stored, entry)


@pytest.mark.parametrize("file", GOOD)
def test_every_good_file_is_accepted(file: str) -> None:
    read(file, GOOD[file])


@pytest.mark.parametrize("file", CORRUPT)
def test_without_its_rule_a_bad_file_is_accepted(file: str) -> None:
    rule = rule_of(file)
    try:
        read(file, BAD[file], without=rule)
    except Unreadable:
        assert file in CUT


@pytest.mark.parametrize("file", [file for file in BAD if file not in CORRUPT])
def test_a_file_of_a_later_version_is_unsupported(file: str) -> None:
    rule_of(file)


def test_every_rule_has_a_bad_file() -> None:
    source = Path(strict.__file__).read_text(encoding="utf-8")
    rules = set(re.findall(r'self\.rule\(\s*"([^"]*)"', source)) | {"str", "json", "msgpack"}
    rules -= {made.rule for made in DATASETS.values()} | {
        "index: 2^22 shards"
    }  # test_index.py tests an index of that many shards
    assert rules == {rule_of(file) for file in BAD}


@pytest.mark.parametrize("name", ["plain", "zstd"])
def test_good_datasets_agree_with_their_index(name: str) -> None:
    read_dataset(HERE / "good" / name)


@pytest.mark.parametrize("name", DATASETS)
def test_a_shard_that_disagrees_with_its_index_is_refused(name: str) -> None:
    folder, made = HERE / "disagree" / name, DATASETS[name]
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == made.files
    with pytest.raises(Broken) as caught:
        read_dataset(folder)
    assert caught.value.rule == made.rule
    read_dataset(folder, without=made.rule)
    first, *others = mdsx.verify(str(folder))
    assert made.says in str(first)
    assert all("shard.00000.mdsx" in str(finding) for finding in (first, *others))


CUT = {
    "bad/frames-block.mdsx.zst",
    "bad/frames-checksum.mdsx.zst",
    "bad/frames-cut-in-frame.mdsx.zst",
    "bad/frames-cut.mdsx.zst",
    "bad/frames-frame-more.mdsx.zst",
    "bad/frames-less-content.mdsx.zst",
    "bad/frames-longer.mdsx.zst",
    "bad/frames-more-content.mdsx.zst",
    "bad/frames-no-table.mdsx.zst",
    "bad/frames-nothing.mdsx.zst",
    "bad/frames-table-sizes.mdsx.zst",
    "bad/frames-table-sum.mdsx.zst",
    "bad/header-63-bytes.mdsx",
    "bad/header-cut-in-rows.mdsx",
    "bad/header-cut-in-schema.mdsx",
    "bad/header-cut.mdsx",
    "bad/header-major-2-short.mdsx",
    "bad/header-nothing.mdsx",
    "bad/header-samples-2-62.mdsx",
    "bad/header-samples.mdsx",
    "bad/header-size-56.mdsx",
    "bad/index-column-key.json",
    "bad/index-column-no-type.json",
    "bad/index-columns.json",
    "bad/index-compression.json",
    "bad/index-cut.json",
    "bad/index-deep.json",
    "bad/index-files-count.json",
    "bad/index-files-form.json",
    "bad/index-files-huge.json",
    "bad/index-files-negative.json",
    "bad/index-format.json",
    "bad/index-hash-digits.json",
    "bad/index-hash-letters.json",
    "bad/index-hash-list.json",
    "bad/index-hash-short.json",
    "bad/index-key-short.json",
    "bad/index-line-feed-first.json",
    "bad/index-list.json",
    "bad/index-mark-first.json",
    "bad/index-metadata-list.json",
    "bad/index-metadata-nan.json",
    "bad/index-metadata-surrogate.json",
    "bad/index-name-surrogate.json",
    "bad/index-no-columns.json",
    "bad/index-no-format.json",
    "bad/index-no-json.json",
    "bad/index-no-utf-8.json",
    "bad/index-nothing.json",
    "bad/index-raw-short.json",
    "bad/index-samples-2-63.json",
    "bad/index-samples-float.json",
    "bad/index-samples-negative.json",
    "bad/index-samples-nested.json",
    "bad/index-size-short.json",
    "bad/index-space-first.json",
    "bad/index-version-float.json",
    "bad/index-version-text.json",
    "bad/index-version-zeros.json",
    "bad/rows-outside.mdsx",
    "bad/rows-overflow.mdsx",
    "bad/schema-behind.mdsx",
    "bad/schema-comma.mdsx",
    "bad/schema-empty.mdsx",
    "bad/schema-nested.mdsx",
    "bad/schema-no-list.mdsx",
    "bad/value-array-overflow.mdsx",
}
"""Files without readable bytes after the broken rule: truncated, or with a count or size that lacks its bytes."""
