"""The files under tests/vectors: good ones are read and written again byte for byte, others are refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mdsx.errors import CorruptError, FormatError, UnsupportedError
from mdsx.format import ShardView, check_shard, numpy_values, parse_index, value_decoder
from mdsx.format.frames import FrameReader
from mdsx.format.rows import NULL
from tests.format import reference
from tests.vectors import generate

HERE = Path(generate.__file__).parent
MANIFEST: dict[str, Any] = json.loads((HERE / "manifest.json").read_text(encoding="utf-8"))
GOOD, BAD, EITHER = MANIFEST["good"], MANIFEST["bad"], MANIFEST["either"]
MADE = {vector.file: vector for vector in generate.vectors()}


def names(files: dict[str, Any], suffix: str) -> list[str]:
    return [file for file in files if file.endswith(suffix)]


def data(file: str) -> bytes:
    return (HERE / file).read_bytes()


def decompress(file: str, raw_size: int) -> bytes:
    stored = data(file)
    reader = FrameReader(raw_size, len(stored), file)
    raw = b"".join(reader.feed(stored))
    reader.finish()
    return raw


def read_shard(raw: bytes) -> list[dict[str, Any]]:
    """Return the samples as mdsx reads them, in the manifest's form."""
    view = ShardView.parse(raw)
    columns: dict[str, list[Any]] = {}
    for number, column in enumerate(view.schema.columns):
        if column.type.fixed_size:
            columns[column.name] = list(numpy_values(column.type, view.rows[f"column{number}"]))
            continue
        kind = column.type.stored
        decode = value_decoder(kind, column.name) if kind.known else bytes
        place = view.schema.variable.index(number)
        values = columns[column.name] = []
        for start, lengths in zip(view.rows["start"].tolist(), view.rows["lengths"].tolist(), strict=True):
            low = start + sum(length for length in lengths[:place] if length != NULL)
            values.append(None if lengths[place] == NULL else decode(view.heap[low : low + lengths[place]]))
    return [
        {name: reference.plain(values[sample]) for name, values in columns.items()} for sample in range(view.samples)
    ]


# --- they never change


def test_the_folder_has_exactly_the_manifests_files() -> None:
    there = {
        path.relative_to(HERE).as_posix()
        for folder in ("good", "bad", "unsupported", "either")
        for path in (HERE / folder).rglob("*")
    }
    assert {file for file in there if (HERE / file).is_file()} == {*GOOD, *BAD, *EITHER} == {*MADE}


def test_the_generator_writes_the_same_bytes() -> None:
    """Frames of libzstd may be others with another libzstd."""
    others = MANIFEST["libzstd"] != generate.libzstd()
    changed = [file for file, vector in MADE.items() if data(file) != vector.data]
    assert not [file for file in changed if not (others and getattr(MADE[file], "libzstd", False))]


def test_readme_and_manifest_describe_every_file() -> None:
    made = generate.vectors()
    assert (HERE / "README.md").read_text(encoding="utf-8") == generate.readme(made)
    if MANIFEST["libzstd"] == generate.libzstd():
        assert (HERE / "manifest.json").read_text(encoding="utf-8") == generate.manifest(made)


# --- good


@pytest.mark.parametrize("file", names(GOOD, ".mdsx"))
def test_a_good_shard_holds_the_values_of_the_manifest(file: str) -> None:
    assert check_shard(data(file), file=file) == []
    assert read_shard(data(file)) == GOOD[file]["samples"]
    assert reference.read_shard(data(file)) == GOOD[file]["samples"]


@pytest.mark.parametrize("file", names(GOOD, ".zst"))
def test_a_good_compressed_shard_is_decompressed(file: str) -> None:
    assert len(decompress(file, GOOD[file]["raw_size"])) == GOOD[file]["raw_size"]


@pytest.mark.parametrize("file", names(GOOD, ".json"))
def test_a_good_index_names_existing_shards(file: str) -> None:
    index = parse_index(data(file), file=file)
    for shard in range(len(index.counts)) if "/index-" not in file else ():
        name = f"{file.removesuffix('index.json')}{index.name(shard)}"
        raw = decompress(name, int(index.raw_sizes[shard])) if index.compression else data(name)
        assert check_shard(raw, file=name, schema=index.schema) == []
        stored = data(name)
        assert (len(stored), reference.xxh3_128(stored)) == (index.sizes[shard], index.hash(shard))
        assert (len(raw), reference.xxh3_128(raw)) == (index.raw_sizes[shard], index.raw_hash(shard))
        assert ShardView.parse(raw).rows_offset == index.rows_offset


# --- bad


def open_file(file: str) -> object:
    if file.endswith(".json"):
        return parse_index(data(file), file=file)
    if file.endswith(".zst"):
        return decompress(file, BAD[file]["raw_size"])
    return ShardView.parse(data(file), file=file)


@pytest.mark.parametrize("file", [file for file in BAD if BAD[file].get("found_by") != "full check"])
def test_a_bad_file_raises_its_error(file: str) -> None:
    with pytest.raises(FormatError) as caught:
        open_file(file)
    assert type(caught.value) is (CorruptError if BAD[file]["kind"] == "corrupt" else UnsupportedError)
    assert BAD[file]["says"] in str(caught.value)
    assert caught.value.file == file
    if not file.endswith(".mdsx"):
        return
    if BAD[file]["kind"] == "unsupported":  # the full check also finds what opening finds
        with pytest.raises(UnsupportedError):
            check_shard(data(file))
    else:
        assert len(check_shard(data(file))) == 1


@pytest.mark.parametrize("file", [file for file in BAD if BAD[file].get("found_by") == "full check"])
def test_the_full_check_finds_one_error(file: str) -> None:
    ShardView.parse(data(file), file=file)
    (error,) = check_shard(data(file), file=file)
    assert BAD[file]["says"] in str(error)
    assert error.file == file


# --- either


@pytest.mark.parametrize("file", EITHER)
def test_a_file_that_may_be_refused_is_refused_or_read_right(file: str) -> None:
    """Whether by opening or by the full check, only with an error of the format."""
    try:
        if file.endswith(".json"):
            parse_index(data(file), file=file)
        elif not (problems := check_shard(data(file), file=file)):
            found = read_shard(data(file))
            assert found == EITHER[file].get("samples", found)
        else:
            raise problems[0]
    except FormatError as error:
        assert error.file == file  # noqa: PT017  # both ways are allowed
