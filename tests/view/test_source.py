"""Datasets of every format that mdsx opens are looked through in the same way; damage is shown where it is."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import soundfile

import mdsx
from mdsx import UsageError
from mdsx.format import filenames
from mdsx.view.pictures import png
from mdsx.view.search import MOST
from mdsx.view.source import Opening, ViewedDataset
from tests.view.conftest import SAMPLES

GOLDEN = Path(__file__).parent.parent / "foreign" / "mds" / "golden"


def ours(path: Path) -> None:
    with mdsx.Writer(path, {"text": "str", "n": "int64"}, shard_size=500, compression="zstd") as out:
        for number in range(40):
            out.write({"text": f"text {number}", "n": number})


def parquet(path: Path) -> None:
    path.mkdir()
    table = pa.table({"text": [f"text {number}" for number in range(40)], "n": np.arange(40)})
    pq.write_table(table, path / "a.parquet", row_group_size=10)
    mdsx.index_parquet(path)


def tars(path: Path) -> None:
    path.mkdir()
    for part in range(2):
        with tarfile.open(path / f"{part}.tar", "w") as tar:
            for number in range(part * 20, part * 20 + 20):
                for extension, data in (("txt", f"text {number}".encode()), ("json", json.dumps(number).encode())):
                    member = tarfile.TarInfo(f"{number:03}.{extension}")
                    member.size = len(data)
                    tar.addfile(member, BytesIO(data))
    mdsx.index_tars(path)


@pytest.mark.parametrize("make", [ours, parquet, tars])
def test_a_dataset_of_any_format_is_looked_through(make: Callable[[Path], None], tmp_path: Path) -> None:
    make(tmp_path / "made")
    source = ViewedDataset(str(tmp_path / "made"), Opening())
    overview = source.overview()
    assert overview["samples"] == 40
    assert json.dumps(overview, allow_nan=False)
    text = "txt" if make is tars else "text"
    assert text in source.text_columns
    sample = source.sample(25)
    assert json.dumps(sample, allow_nan=False)
    assert "text 25" in [column["value"].get("text") for column in sample["columns"]]
    assert [match["number"] for match in source.search(text, "text 3", range(40), 30.0)["matches"]] == [
        3,
        *range(30, 40),
    ]
    shards = source.shards(0, 100)["shards"]
    assert sum(each["samples"] for each in shards) == 40
    assert [source.check(each["number"])["state"] for each in shards] == ["undamaged"] * len(shards)
    assert shards[sample["shard"]]["first"] + sample["within"] == 25


@pytest.mark.parametrize("name", [path.name for path in sorted(GOLDEN.iterdir()) if (path / "index.json").exists()])
def test_datasets_of_mosaicml_are_looked_through(name: str) -> None:
    source = ViewedDataset(str(GOLDEN / name), Opening())
    assert json.dumps(source.overview(), allow_nan=False)
    found = source.samples(0, 10)
    assert json.dumps(found, allow_nan=False)
    for each in found["samples"]:
        if "error" not in each:
            assert json.dumps(source.sample(each["number"]), allow_nan=False)


def test_only_the_chosen_columns_are_shown(dataset: Path) -> None:
    source = ViewedDataset(str(dataset), Opening(columns=["score", "caption"]))
    assert [column["name"] for column in source.sample(3)["columns"]] == ["score", "caption"]
    assert [column["name"] for column in source.overview()["columns"]] == ["score", "caption"]
    assert source.check(0)["state"] == "undamaged"


def test_a_long_text_comes_in_pieces(tmp_path: Path) -> None:
    text = "".join(chr(0x1F600 + number % 50) for number in range(45_000))
    with mdsx.Writer(tmp_path / "long", {"text": "str"}) as out:
        out.write({"text": text})
    source = ViewedDataset(str(tmp_path / "long"), Opening())
    pieces = [source.sample(0)["columns"][0]["value"]["text"]]
    while sum(map(len, pieces)) < len(text):
        pieces.append(source.text(0, "text", sum(map(len, pieces)))["text"])
    assert "".join(pieces) == text
    assert len(pieces) == 3


def test_damage_is_shown_at_its_sample_and_shard(dataset: Path, tmp_path: Path) -> None:
    copy, damaged = tmp_path / "copy", 0
    copy.mkdir()
    for file in dataset.iterdir():
        if file.is_file():
            (copy / file.name).write_bytes(file.read_bytes())
    source = ViewedDataset(str(copy), Opening())
    shard = copy / source.shards(1, 1)["shards"][0]["name"]
    data = bytearray(shard.read_bytes())
    data[-10] ^= 0xFF
    shard.write_bytes(data)
    damaged = source.shards(2, 1)["shards"][0]["first"] - 1
    found = {each["number"]: each for each in source.samples(damaged - 2, 3)["samples"]}
    assert "error" in found[damaged]
    assert "error" not in found[damaged - 2]
    with pytest.raises(mdsx.CorruptError):
        source.sample(damaged)
    checked = source.check(1)
    assert checked["state"] == "damaged"
    assert str(damaged) in checked["problems"][0]["message"]
    missing = copy / source.shards(0, 1)["shards"][0]["name"]
    missing.unlink()
    assert source.check(0)["state"] == "damaged"
    assert source.check(0)["missing"]
    missing.mkdir()  # the disk cannot read it
    assert source.check(0)["state"] == "unread"
    matches = source.search("caption", "caption", range(damaged, damaged + 1), 30.0)["matches"]
    assert matches[0]["error"]


def test_a_search_stops_at_its_limits(dataset: Path) -> None:
    source = ViewedDataset(str(dataset), Opening())
    many = source.search("caption", "caption", range(SAMPLES), 30.0)
    assert len(many["matches"]) == MOST
    assert many["next"] == MOST
    rest = source.search("caption", "caption", range(many["next"], SAMPLES), 30.0)
    assert rest["matches"][0]["number"] == MOST
    assert source.search("caption", "nothing", range(10**9), 0.0)["next"] == SAMPLES
    assert source.search("caption", "nothing", range(50, 60), 30.0)["next"] == 60
    assert source.search("caption", "x", range(500, 600), 30.0) == {"matches": [], "next": 500, "total": SAMPLES}


def test_an_empty_dataset_is_shown(tmp_path: Path) -> None:
    with mdsx.Writer(tmp_path / "empty", {"text": "str"}):
        pass
    source = ViewedDataset(str(tmp_path / "empty"), Opening())
    assert source.overview()["samples"] == 0
    assert source.samples(0, 10)["samples"] == []
    assert source.shards(0, 10)["shards"] == []
    assert source.sizes() == {"x": [], "y": []}
    with pytest.raises(UsageError, match="numbered from 0"):
        source.sample(0)


def test_the_bars_of_many_shards_keep_the_largest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ours(tmp_path / "made")
    source = ViewedDataset(str(tmp_path / "made"), Opening())
    whole: Any = source.sizes()
    monkeypatch.setattr("mdsx.view.source._BARS", 2)
    bars = source.sizes()
    assert len(bars["y"]) == 2
    assert max(bars["y"]) == max(whole["y"])
    assert filenames.INDEX not in str(bars)


def test_large_samples_are_read_one_by_one(dataset: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mdsx.view.source._LARGE", 100)
    source = ViewedDataset(str(dataset), Opening())
    read: list[int] = []
    values = source.sample_values

    def noted(number: int) -> dict[str, Any]:
        read.append(number)
        return values(number)

    monkeypatch.setattr(source, "sample_values", noted)
    found = source.samples(0, 10)
    assert [each["number"] for each in found["samples"]] == list(range(10))
    assert found["large"] > 100
    assert read == []
    assert source.sample(5)["number"] == 5


def test_types_of_packages_are_shown_as_they_are_stored(tmp_path: Path) -> None:
    """Also where the package is not here."""
    with mdsx.Writer(tmp_path / "data", {"ghost": "ghost.Thing?", "many": "ghost.Thing[*]"}) as out:
        png = b"\x89PNG\r\n\x1a\n"
        many = pa.array([[b"a", png], []], pa.list_(pa.binary()))
        out.write_batch({"ghost": pa.array([b"\0\1", None], pa.binary()), "many": many})
    source = ViewedDataset(str(tmp_path / "data"), Opening())
    assert [column["type"] for column in source.overview()["columns"]] == ["ghost.Thing?", "ghost.Thing[*]"]
    ghost, listed = source.sample(0)["columns"]
    assert (ghost["type"], ghost["value"]["kind"], ghost["value"]["size"]) == ("ghost.Thing?", "bytes", 2)
    assert [item["kind"] for item in listed["value"]["items"]] == ["bytes", "image"]
    assert source.picture(0, "many", 1) == ("image/png", png)
    assert source.sample(1)["columns"][0]["value"] == {"kind": "null"}


def test_sound_and_video_are_played_if_their_column_says_what_they_are(tmp_path: Path) -> None:
    """The first bytes alone say too little."""
    mp3, mp4 = b"\xff\xfb\x90\x64", b"\0\0\0\x18ftypmp42"
    with mdsx.Writer(tmp_path / "data", {"song": "mp3", "clips": "mp4[*]", "raw": "bytes"}) as out:
        out.write({"song": mp3, "clips": [mp4], "raw": mp3})
    source = ViewedDataset(str(tmp_path / "data"), Opening())
    song, clips, raw = (column["value"] for column in source.sample(0)["columns"])
    assert (song["kind"], song["media"], clips["items"][0]["kind"], raw["kind"]) == (
        "audio",
        "audio/mpeg",
        "video",
        "bytes",
    )
    assert source.picture(0, "clips", 0) == ("video/mp4", mp4)
    with pytest.raises(UsageError, match="not an image, sound or video"):
        source.picture(0, "raw", None)


def test_what_decoding_gives_is_shown_as_pixels_and_samples(tmp_path: Path) -> None:
    with mdsx.Writer(tmp_path / "made", {"photo": "png", "speech": "wav", "n": "int64"}) as out:
        for number in range(3):
            sound = BytesIO()
            soundfile.write(sound, np.full(800, number / 4, np.float32), 8000, format="WAV", subtype="FLOAT")
            out.write({"photo": png(np.full((40, 60, 3), 80 * number, np.uint8)), "speech": sound.getvalue(), "n": 1})
    decode: dict[str, mdsx.Decoder] = {"photo": mdsx.Image(size=(16, 24)), "speech": mdsx.Audio(rate=4000)}
    source = ViewedDataset(str(tmp_path / "made"), Opening(decode=decode))
    assert [column["type"] for column in source.overview()["columns"]] == ["uint8[16,24,3]", "float32[*]", "int64"]
    photo, speech, _ = (column["value"] for column in source.sample(2)["columns"])
    assert photo["pixels"]
    assert photo["shape"] == [16, 24, 3]
    media, data = source.picture(2, "photo", None)
    assert media == "image/png"
    assert (mdsx.Image().decode(data) == 160).all()
    assert speech["shape"] == [400]
    assert source.samples(0, 3)["samples"][1]["picture"] == "photo"
