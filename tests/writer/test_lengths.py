"""A writer's lengths: with resumes, with parts, and after a repair."""

from __future__ import annotations

import io
import json
import warnings
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import mdsx
from mdsx.datasets import excerpt_of
from mdsx.shards import View, lengths_of

COLUMNS = {"tokens": "uint16[*]", "id": "int32"}
KEY = "_lengths/tokens.u32"


def samples(first: int, stop: int) -> list[dict[str, object]]:
    return [{"tokens": np.zeros(number % 50, np.uint16), "id": number} for number in range(first, stop)]


def write(
    url: Path,
    first: int = 0,
    stop: int = 200,
    *,
    compression: str | None = None,
    resume: bool = False,
    fails: bool = False,
) -> None:
    with mdsx.Writer(url, COLUMNS, shard_size=2000, compression=compression, lengths=["tokens"], resume=resume) as out:
        for each in samples(first + out.samples, stop):
            out.write(each)
        if fails:
            raise KeyError


def lengths(url: Path) -> list[int]:
    view = View([excerpt_of(mdsx.Dataset(url))])
    shards = np.repeat(np.arange(len(view.counts)), view.counts)
    stored = np.concatenate([np.arange(count) for count in view.counts])
    found: list[int] = lengths_of(view, "tokens").of(shards, stored).tolist()
    return found


def test_a_resumed_writer_writes_the_lengths_of_all_samples(tmp_path: Path) -> None:
    write(tmp_path / "whole", compression="zstd")
    with pytest.raises(KeyError):
        write(tmp_path / "resumed", stop=120, fails=True, compression="zstd")
    assert not (tmp_path / "resumed" / KEY).exists()
    write(tmp_path / "resumed", compression="zstd", resume=True)
    assert (tmp_path / "resumed" / KEY).read_bytes() == (tmp_path / "whole" / KEY).read_bytes()


def sums(url: Path) -> object:
    return json.loads((url / "index.json").read_bytes()).get("lengths")


def test_the_index_has_the_sums_of_the_lengths_that_are_written(tmp_path: Path) -> None:
    total = sum(number % 50 for number in range(200))
    with pytest.raises(KeyError):
        write(tmp_path / "resumed", stop=120, fails=True)
    write(tmp_path / "resumed", resume=True)
    assert sums(tmp_path / "resumed") == {"tokens": total}
    with mdsx.Writer(tmp_path / "both", COLUMNS, lengths=["id", "tokens"]) as out:
        out.write_batch({"tokens": [np.zeros(number, np.uint16) for number in (2, 0)], "id": [3, 4]})
    assert sums(tmp_path / "both") == {"tokens": 2, "id": 7}
    with mdsx.Writer(tmp_path / "none", COLUMNS):
        pass
    mdsx.write_lengths(tmp_path / "none", "tokens")
    assert sums(tmp_path / "none") is None


def test_a_merged_dataset_has_the_sums_that_all_parts_have(tmp_path: Path) -> None:
    for part, lengths in enumerate([["tokens", "id"], ["tokens"]]):
        with mdsx.Writer(tmp_path / f"part-{part:05d}", COLUMNS, lengths=lengths) as out:
            out.write_batch({"tokens": [np.zeros(5 + part, np.uint16)], "id": [part]})
    mdsx.merge(tmp_path)
    assert sums(tmp_path) == {"tokens": 11}


@pytest.mark.parametrize("damaged", ["index.json", "shard.00001.mdsx"])
def test_a_repair_keeps_the_sums_right(tmp_path: Path, damaged: str) -> None:
    write(tmp_path)
    before = (tmp_path / "index.json").read_bytes()
    place = before.index(b'"rows_offset"') if damaged == "index.json" else -1
    data = bytearray((tmp_path / damaged).read_bytes())
    data[place] ^= 1
    (tmp_path / damaged).write_bytes(data)
    assert mdsx.repair(tmp_path, drop_damaged=True).written
    if damaged == "index.json":
        assert (tmp_path / damaged).read_bytes() == before
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the file of lengths is that of the dataset before
        assert sums(tmp_path) == {"tokens": sum(lengths(tmp_path))}


@pytest.mark.parametrize("what", ["lengths", "sizes"])
def test_files_that_an_append_extends_meanwhile_stay(tmp_path: Path, what: str) -> None:
    columns = {"image": "png"} if what == "sizes" else COLUMNS
    image = io.BytesIO()
    Image.new("RGB", (3, 2)).save(image, "PNG")

    def part(url: Path) -> None:
        with mdsx.Writer(url, columns, lengths=[] if what == "sizes" else ["tokens"]) as out:
            for each in samples(0, 20):
                out.write({"image": image.getvalue()} if what == "sizes" else each)

    part(tmp_path)
    call = partial(mdsx.write_sizes, tmp_path) if what == "sizes" else partial(mdsx.write_lengths, tmp_path, "tokens")
    call()

    def meanwhile(progress: mdsx.Progress) -> None:
        if not (tmp_path / "part-00000").exists():
            part(tmp_path / "part-00000")
            mdsx.append(tmp_path, "part-00000")

    with pytest.raises(mdsx.ChangedError, match="changed while it was read"):
        call(watch=meanwhile)
    before = {path.name: path.read_bytes() for path in (tmp_path / "_lengths").iterdir()}
    call()
    assert {path.name: path.read_bytes() for path in (tmp_path / "_lengths").iterdir()} == before


def test_a_column_without_lengths_is_refused_at_once(tmp_path: Path) -> None:
    for wrong in (["absent"], "tokens"):
        with pytest.raises(mdsx.UsageError):
            mdsx.Writer(tmp_path / "data", COLUMNS, lengths=wrong)
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize("wrong", [-1, 2**32])
def test_a_number_that_cannot_be_a_length_is_refused_when_it_is_written(tmp_path: Path, wrong: int) -> None:
    says = rf"column 'n': a length is out of range \(expected 0 to 4294967295, found {wrong}\)"
    with mdsx.Writer(tmp_path, {"free": "int64", "text": "str", "n": "int64"}, lengths=["n", "text"]) as out:
        out.write({"free": wrong, "text": "a", "n": 2**32 - 1})
        with pytest.raises(mdsx.SampleError, match=says):
            out.write({"free": 0, "text": "b", "n": wrong})
        with pytest.raises(mdsx.SampleError, match=says):
            out.write_batch({"free": [0, 0], "text": ["b", "c"], "n": [7, wrong]})
        out.write_batch({"free": [wrong], "text": ["d"], "n": [0]})
        assert out.samples == 2
    assert [(sample["free"], sample["text"], sample["n"]) for sample in mdsx.Dataset(tmp_path)] == [
        (wrong, "a", 2**32 - 1),
        (wrong, "d", 0),
    ]
    assert sums(tmp_path) == {"n": 2**32 - 1, "text": 2}


def test_merge_joins_the_lengths_of_the_parts(tmp_path: Path) -> None:
    for part in range(3):
        write(tmp_path / f"part-{part:05d}", 70 * part, 70 * part + 70)
    mdsx.merge(tmp_path)
    joined = (tmp_path / KEY).read_bytes()
    assert lengths(tmp_path) == [number % 50 for number in range(210)]
    mdsx.write_lengths(tmp_path, "tokens")
    assert (tmp_path / KEY).read_bytes() == joined
    (tmp_path / KEY).unlink()
    (tmp_path / "part-00001" / KEY).unlink()
    mdsx.merge(tmp_path, overwrite=True)
    assert not (tmp_path / KEY).exists()


def test_after_a_repair_the_lengths_are_read_from_the_rows(tmp_path: Path) -> None:
    write(tmp_path)
    shard = tmp_path / "shard.00001.mdsx"
    data = bytearray(shard.read_bytes())
    data[-1] ^= 1
    shard.write_bytes(data)
    done = mdsx.repair(tmp_path, drop_damaged=True)
    assert done.written
    kept = [int(each["id"]) % 50 for each in mdsx.Dataset(tmp_path)]
    assert len(kept) == 199
    with pytest.warns(UserWarning, match="mdsx lengths .* --column tokens"):
        assert lengths(tmp_path) == kept
    mdsx.write_lengths(tmp_path, "tokens")
    assert lengths(tmp_path) == kept
