"""`mdsx convert mds` copies the samples that are read in place; types that only MDS has become ours."""

from __future__ import annotations

import decimal
import io
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mdsx
from mdsx import CorruptError, Dataset, FormatError, SampleError, UsageError
from tests.transfer.converting.reruns import files

GOLDEN = Path(__file__).parents[2] / "foreign" / "mds" / "golden"


def plain(value: Any) -> Any:
    """Return a value of MDS as the converted dataset has it."""
    if isinstance(value, decimal.Decimal):
        return str(value)
    if isinstance(value, list):
        return [plain(each) for each in value]
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if hasattr(value, "tobytes") and hasattr(value, "mode"):
        return value.mode, value.size, value.tobytes()
    return value


def decoded(value: Any, like: Any) -> Any:
    from PIL import Image

    if isinstance(like, list):
        return [decoded(each, one) for each, one in zip(value, like, strict=True)]
    if isinstance(like, Image.Image):
        image = Image.open(io.BytesIO(value))
        return image.mode, image.size, image.tobytes()
    return plain(value)


@pytest.mark.parametrize(
    "name",
    [
        *("mixed", "hashes-zstd", "merged", "compression-gz", "encoding-jpeg", "encoding-list-png"),
        *(
            "encoding-str_decimal",
            "encoding-str_int",
            "encoding-str_float",
            "encoding-ndarray-int16-2x3",
            "encoding-json",
        ),
    ],
)
def test_the_samples_are_those_that_are_read_in_place(name: str, tmp_path: Path) -> None:
    place = list(Dataset(GOLDEN / name, cache=tmp_path / "cache"))
    dropped = ["dyn"] if "dyn" in place[0] else []  # arrays of different dimensions
    place = [{key: value for key, value in sample.items() if key not in dropped} for sample in place]
    made = mdsx.convert("mds", str(GOLDEN / name), tmp_path / "out", shard_size="2KB", drop=dropped)
    found = list(Dataset(tmp_path / "out"))
    assert made.samples == len(place) == len(found)
    for sample, expected in zip(found, place, strict=True):
        like = {key: str(value) if made.columns[key] == "str" else plain(value) for key, value in expected.items()}
        assert {key: plain(value) for key, value in sample.items()} == like


def test_images_become_png_files_of_the_same_pixels(tmp_path: Path) -> None:
    pytest.importorskip("PIL")
    place = [sample["x"] for sample in Dataset(GOLDEN / "encoding-list-pil", cache=tmp_path / "cache")]
    made = mdsx.convert("mds", str(GOLDEN / "encoding-list-pil"), tmp_path / "out")
    assert made.columns["x"] == "png[*]"
    found = [sample["x"] for sample in Dataset(tmp_path / "out")]
    assert [decoded(one, like) for one, like in zip(found, place, strict=True)] == [plain(like) for like in place]


def test_an_image_that_png_cannot_hold_is_an_error(tmp_path: Path) -> None:
    """The golden images have the modes RGB, L, 1, RGBA, P, I;16 and F; MDS has no palettes, so P is grey."""
    pytest.importorskip("PIL")
    source = GOLDEN / "encoding-pil"
    with pytest.raises(SampleError, match=r"shard 0, sample 6, column 'x'.*PNG can hold.*mode F.*leave the column out"):
        mdsx.convert("mds", str(source), tmp_path / "strict")
    made = mdsx.convert("mds", str(source), tmp_path / "out", on_error="skip")
    assert (made.samples, made.skipped) == (6, 1)
    place = [sample["x"] for sample in Dataset(source, cache=tmp_path / "cache")][:6]
    found = [sample["x"] for sample in Dataset(tmp_path / "out")]
    assert [decoded(one, like) for one, like in zip(found, place, strict=True)] == [plain(like) for like in place]


def test_arrays_of_different_dimensions_need_a_declared_type(tmp_path: Path) -> None:
    source = str(GOLDEN / "encoding-ndarray-float32")
    with pytest.raises(SampleError, match=r"column 'x': no column type fits .*float32\[\*,\*\].*--drop x.*'msgpack'"):
        mdsx.convert("mds", source, tmp_path / "out")
    mdsx.convert("mds", source, tmp_path / "out", columns={"x": "msgpack"})
    place = [sample["x"].tolist() for sample in Dataset(source, cache=tmp_path / "cache")]
    assert [sample["x"] for sample in Dataset(tmp_path / "out")] == place


def test_several_datasets_become_one_with_any_number_of_processes(tmp_path: Path) -> None:
    sources = [str(GOLDEN / "hashes"), str(GOLDEN / "hashes-zstd")]
    for processes in (1, 2):
        out = tmp_path / str(processes)
        made = mdsx.convert("mds", sources, out, drop="dyn", shard_size="1KB", num_workers=processes)
        assert made.samples == 40
    files = [
        {str(path.relative_to(tmp_path / one)): path.read_bytes() for path in (tmp_path / one).rglob("*.*")}
        for one in ("1", "2")
    ]
    assert files[0] == files[1]


def test_pickles_are_refused_and_can_be_left_out(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="pickles are never loaded"):
        mdsx.convert("mds", str(GOLDEN / "encoding-pkl"), tmp_path / "out")
    made = mdsx.convert("mds", str(GOLDEN / "encoding-pkl"), tmp_path / "out", drop="pkl")
    assert dict(made.columns) == {"id": "int64"}


def test_a_sample_that_cannot_be_decoded_is_left_out_alone(tmp_path: Path) -> None:
    """Also if the conversion had stopped at it, and is continued with on_error="skip"."""
    source = shutil.copytree(GOLDEN / "mixed", tmp_path / "data")
    place = list(Dataset(source, columns=["id", "j"], cache=tmp_path / "cache"))
    shard = source / "shard.00000.mds"
    data = shard.read_bytes()
    at = [match.start() for match in re.finditer(rb'\{"', data)][-3]
    shard.write_bytes(data[:at] + b"x" + data[at + 1 :])
    options: dict[str, Any] = {"drop": ["dyn"], "shard_size": "300B"}
    with pytest.raises(CorruptError, match=r"shard\.00000\.mds: sample 8, column 'j': this is not JSON"):
        mdsx.convert("mds", str(source), tmp_path / "stopped", **options)
    for name in ("stopped", "out"):
        made = mdsx.convert("mds", str(source), tmp_path / name, on_error="skip", **options)
        assert (made.samples, made.skipped) == (19, 1)
    found = list(Dataset(tmp_path / "out", columns=["id", "j"]))
    assert found == place[:8] + place[9:]
    assert files(tmp_path / "stopped") == files(tmp_path / "out")


def test_a_shard_that_fails_its_hashes_is_left_out_and_its_samples_are_counted(tmp_path: Path) -> None:
    shutil.copytree(GOLDEN / "hashes", tmp_path / "data")
    shard = min((tmp_path / "data").glob("shard.*"))
    data = bytearray(shard.read_bytes())
    data[len(data) // 2] ^= 1
    shard.write_bytes(data)
    with pytest.raises(CorruptError, match=shard.name):
        mdsx.convert("mds", str(tmp_path / "data"), tmp_path / "out", drop="dyn")
    made = mdsx.convert("mds", str(tmp_path / "data"), tmp_path / "some", drop="dyn", on_error="skip")
    assert (made.samples, made.skipped) == (11, 9)
    report = (tmp_path / "some" / "_convert" / "skipped.json").read_text()
    assert "so samples 0 to 8 cannot be used" in report


def test_other_datasets_are_refused(tmp_path: Path) -> None:
    mdsx.convert("mds", str(GOLDEN / "encoding-str"), tmp_path / "ours")
    with pytest.raises(UsageError, match="is not an MDS dataset"):
        mdsx.convert("mds", str(tmp_path / "ours"), tmp_path / "out")
    with pytest.raises(UsageError, match="the datasets have different columns"):
        mdsx.convert("mds", [str(GOLDEN / "encoding-str"), str(GOLDEN / "encoding-int")], tmp_path / "out")
