"""The sizes of images that a dataset stores: with appends, merges and other formats."""

from __future__ import annotations

import io
import re
import sys
import threading
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import PIL.Image
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import mdsx
from mdsx.datasets import excerpt_of
from mdsx.shards import View, lengths_of

FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF")
KEYS = ("_lengths/image=height.u32", "_lengths/image=width.u32")
ORIENTATION = 0x0112


def encoded(height: int, width: int, form: str, orientation: int | None = None) -> bytes:
    out, options = io.BytesIO(), dict[str, Any]()
    if orientation is not None:
        options["exif"] = PIL.Image.Exif()
        options["exif"][ORIENTATION] = orientation
    PIL.Image.new("RGB", (width, height)).save(out, form, **options)
    return out.getvalue()


def size_of(number: int) -> tuple[int, int]:
    return 30 + number % 40, 20 + number * 7 % 50


def write(url: Path, first: int, stop: int, kind: str = "png") -> None:
    with mdsx.Writer(url, {"id": "int64", "image": kind}, shard_size=3000) as out:
        for number in range(first, stop):
            out.write({"id": number, "image": encoded(*size_of(number), "PNG")})


def sizes(data: mdsx.Dataset, column: str = "image") -> list[tuple[int, int]]:
    """Return the height and the width of each sample, as buckets get them."""
    view = View([excerpt_of(data)])
    shards = np.repeat(np.arange(len(view.counts)), view.counts)
    stored = np.concatenate([np.arange(count) for count in view.counts])
    sides: list[Any] = ["height", "width"]
    heights, widths = (lengths_of(view, column, rule=side).of(shards, stored).tolist() for side in sides)
    return list(zip(heights, widths, strict=True))


@pytest.mark.parametrize("form", FORMATS)
def test_sizes_are_those_of_images_as_they_are_shown(tmp_path: Path, form: str) -> None:
    orientations = [None, *range(1, 9)] if form not in ("GIF", "BMP") else [None]
    with mdsx.Writer(tmp_path / "a", {"image": "bytes"}) as out:
        for orientation in orientations:
            out.write({"image": encoded(30, 50, form, orientation)})
    found = mdsx.write_sizes(tmp_path / "a", "image")
    assert (found.samples, found.missing) == (len(orientations), 0)
    turned = [orientation is not None and orientation >= 5 for orientation in orientations]
    assert sizes(mdsx.Dataset(tmp_path / "a")) == [(50, 30) if each else (30, 50) for each in turned]


def test_the_only_column_of_images_needs_no_name(tmp_path: Path) -> None:
    write(tmp_path / "a", 0, 5)
    found = mdsx.write_sizes(tmp_path / "a")
    assert (found.column, found.samples, found.missing) == ("image", 5, 0)
    assert found.files == tuple(f"{tmp_path}/a/{key}" for key in KEYS)
    with mdsx.Writer(tmp_path / "b", {"one": "png", "other": "jpeg"}):
        pass
    with pytest.raises(mdsx.UsageError, match=r"several columns of images.*expected one, other.*name the column"):
        mdsx.write_sizes(tmp_path / "b")
    with mdsx.Writer(tmp_path / "c", {"x": "int64", "y": "jpeg[*]"}):
        pass
    with pytest.raises(mdsx.UsageError, match="no column of images"):
        mdsx.write_sizes(tmp_path / "c")
    with pytest.raises(mdsx.UsageError, match=r"column 'y'.*does not have encoded images"):
        mdsx.write_sizes(tmp_path / "c", "y")


def test_null_and_damaged_images_have_no_size(tmp_path: Path) -> None:
    good = encoded(9, 7, "JPEG")
    values = [None, b"", b"nonsense", good[:8], good, encoded(9, 7, "PNG")[:12]]
    with mdsx.Writer(tmp_path / "a", {"image": "bytes?"}) as out:
        out.write_batch({"image": values})
    assert mdsx.write_sizes(tmp_path / "a", "image").missing == 5
    assert sizes(mdsx.Dataset(tmp_path / "a")) == [(0, 0), (0, 0), (0, 0), (0, 0), (9, 7), (0, 0)]


def test_an_image_with_damaged_exif_data_has_a_size(tmp_path: Path) -> None:
    out = io.BytesIO()
    PIL.Image.new("RGB", (7, 9)).save(out, "JPEG", exif=b"Exif\0\0no TIFF header")
    with mdsx.Writer(tmp_path / "a", {"image": "jpeg"}) as writer:
        writer.write({"image": out.getvalue()})
    assert mdsx.write_sizes(tmp_path / "a").missing == 0
    assert sizes(mdsx.Dataset(tmp_path / "a")) == [(9, 7)]
    decoded = mdsx.Dataset(tmp_path / "a", decode={"image": mdsx.Image(backend="pillow")})
    assert decoded[0]["image"].shape == (9, 7, 3)


def test_a_size_is_not_missing_because_memory_is_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise MemoryError("here")

    write(tmp_path / "a", 0, 5)
    monkeypatch.setattr(PIL.Image, "open", full)
    with pytest.raises(MemoryError, match="here"):
        mdsx.write_sizes(tmp_path / "a")
    assert not (tmp_path / "a" / KEYS[0]).exists()


def test_the_filters_of_warnings_stay_as_they_were(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All threads have the same filters, so only one thread may change them for a while."""
    threads, enter = set[threading.Thread](), warnings.catch_warnings.__enter__

    def watched(context: Any) -> Any:
        threads.add(threading.current_thread())
        return enter(context)

    write(tmp_path / "a", 0, 50)
    monkeypatch.setattr(warnings.catch_warnings, "__enter__", watched)
    monkeypatch.setattr(PIL.Image, "MAX_IMAGE_PIXELS", 2500)  # Pillow warns about larger images
    assert mdsx.write_sizes(tmp_path / "a").missing == 0
    assert threads == {threading.current_thread()}


def test_a_bomb_is_not_decoded(tmp_path: Path) -> None:
    header = b"\x89PNG\r\n\x1a\n" + (13).to_bytes(4, "big") + b"IHDR"
    header += (2**31 - 1).to_bytes(4, "big") * 2 + b"\x08\x02\x00\x00\x00" + bytes(4)
    with mdsx.Writer(tmp_path / "a", {"image": "png"}) as out:
        out.write({"image": header})
    assert mdsx.write_sizes(tmp_path / "a").missing == 1


def test_an_append_extends_the_sizes(tmp_path: Path) -> None:
    url = tmp_path / "a"
    write(url, 0, 50)
    mdsx.write_sizes(url)
    opened = mdsx.Dataset(url)
    write(url / "part-00000", 50, 80)
    first = mdsx.append(url, "part-00000")
    assert sizes(mdsx.Dataset(url)) == [size_of(number) for number in range(80)]
    write(url / "part-00001", 80, 90)
    mdsx.write_sizes(url / "part-00001")
    mdsx.append(url, "part-00001")
    assert sizes(mdsx.Dataset(url)) == [size_of(number) for number in range(90)]
    assert sizes(opened) == [size_of(number) for number in range(50)]
    assert sizes(mdsx.Dataset(url, snapshot=first.fingerprint)) == [size_of(number) for number in range(80)]


def test_an_append_without_pillow_says_what_to_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url = tmp_path / "a"
    write(url, 0, 20)
    mdsx.write_sizes(url)
    write(url / "part-00000", 20, 30)
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.warns(UserWarning, match=r"appended images.*mdsx\[images\].*mdsx sizes .*--column image"):
        mdsx.append(url, "part-00000")
    data = mdsx.Dataset(url)
    assert len(data) == 30
    with pytest.raises(mdsx.MissingError, match=r"mdsx sizes .*--column image"):
        sizes(data)
    with pytest.raises(mdsx.UsageError, match=r"Pillow.*pip install 'mdsx\[images\]'"):
        mdsx.write_sizes(url)


def test_a_merge_joins_the_sizes_that_all_parts_have(tmp_path: Path) -> None:
    for part, (first, stop) in enumerate([(0, 20), (20, 33)]):
        write(tmp_path / f"part-{part:05d}", first, stop)
        mdsx.write_sizes(tmp_path / f"part-{part:05d}")
    mdsx.merge(tmp_path)
    assert sizes(mdsx.Dataset(tmp_path)) == [size_of(number) for number in range(33)]


def test_sizes_are_not_those_of_another_dataset(tmp_path: Path) -> None:
    for name, first in (("a", 0), ("b", 7)):
        write(tmp_path / name, first, first + 20)
    mdsx.write_sizes(tmp_path / "a")
    (tmp_path / "b/_lengths").mkdir()
    for key in KEYS:
        (tmp_path / "b" / key).write_bytes((tmp_path / "a" / key).read_bytes())
    with pytest.raises(mdsx.MissingError, match=r"or of another dataset.*write them once: mdsx sizes"):
        sizes(mdsx.Dataset(tmp_path / "b"))


def test_damaged_sizes_are_an_error(tmp_path: Path) -> None:
    write(tmp_path / "a", 0, 20)
    mdsx.write_sizes(tmp_path / "a")
    path = tmp_path / "a" / KEYS[0]
    data = bytearray(path.read_bytes())
    data[5] ^= 1
    path.write_bytes(data)
    with pytest.warns(UserWarning, match="damaged"), pytest.raises(mdsx.MissingError, match=re.escape(str(path))):
        sizes(mdsx.Dataset(tmp_path / "a"))


def test_lengths_and_sizes_of_a_column_stand_side_by_side(tmp_path: Path) -> None:
    with mdsx.Writer(tmp_path / "a", {"image": "png"}, lengths=["image"]) as out:
        for number in range(5):
            out.write({"image": encoded(*size_of(number), "PNG")})
    before = (tmp_path / "a/_lengths/image.u32").read_bytes()
    mdsx.write_sizes(tmp_path / "a")
    assert (tmp_path / "a/_lengths/image.u32").read_bytes() == before
    assert sizes(mdsx.Dataset(tmp_path / "a")) == [size_of(number) for number in range(5)]


def test_sizes_of_other_formats_and_of_a_bucket(tmp_path: Path, s3_url: str) -> None:
    """Images in Parquet files are read in place; those in a bucket through its storage."""
    images = [encoded(*size_of(number), "JPEG") for number in range(30)]
    (tmp_path / "p").mkdir()
    pq.write_table(pa.table({"image": pa.array(images, pa.binary())}), tmp_path / "p/a.parquet", row_group_size=8)
    mdsx.index_parquet(str(tmp_path / "p"), columns={"image": "jpeg"})
    assert mdsx.write_sizes(tmp_path / "p").samples == 30
    assert sizes(mdsx.Dataset(tmp_path / "p")) == [size_of(number) for number in range(30)]
    write_remote(s3_url)
    mdsx.write_sizes(s3_url)
    assert sizes(mdsx.Dataset(s3_url, cache=tmp_path / "cache")) == [size_of(number) for number in range(30)]


def write_remote(url: str) -> None:
    with mdsx.Writer(url, {"image": "png"}, shard_size=3000) as out:
        for number in range(30):
            out.write({"image": encoded(*size_of(number), "PNG")})
