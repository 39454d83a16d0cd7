"""decode= of a Dataset: its samples have what the decoders give, wherever and however they are read."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import mdsx
from mdsx.order import key
from tests.decoding.files import encoded, jpeg, photo, sound, tone

N = 30
COLUMNS = {"image": "jpeg", "other": "bytes?", "speech": "bytes", "label": "int64"}
DECODE: dict[str, mdsx.Decoder] = {
    "image": mdsx.Image(size=24, resize="random_crop"),
    "other": mdsx.Image(mode="L", layout="CHW"),
    "speech": mdsx.Audio(8000),
}


def sample(number: int) -> dict[str, Any]:
    picture = photo(40 + number % 3, 60, seed=number % 5)
    return {
        "image": jpeg(picture),
        "other": None if number % 4 == 1 else encoded(picture, ("PNG", "WEBP", "GIF")[number % 3]),
        "speech": sound(tone(8000, 0.01 * (number % 3 + 1), hertz=400.0 + number), 8000, ("FLAC", "WAV")[number % 2]),
        "label": number,
    }


SAMPLES = [sample(number) for number in range(N)]


def expected(number: int) -> dict[str, Any]:
    """Return what the decoders make of a sample, with the seed of its number."""
    seed = key(0, 8, 0, number)
    stored = SAMPLES[number]
    found = {name: one if (one := stored[name]) is None else DECODE[name].decode(one, seed) for name in DECODE}
    return {**found, "label": number}


def check(found: dict[str, Any], number: int) -> None:
    for name, value in expected(number).items():
        np.testing.assert_array_equal(found[name], value)
        assert value is None or name == "label" or found[name].flags.carray
        assert type(found[name]) is (type(value) if value is None or name in DECODE else np.int64)


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("decoded") / "data"
    with mdsx.Writer(folder, COLUMNS, shard_size="20kB") as out:
        for each in SAMPLES:
            out.write(each)
    return str(folder)


@pytest.fixture(params=[True, False])
def dataset(url: str, tmp_path: Path, request: pytest.FixtureRequest) -> mdsx.Dataset:
    return mdsx.Dataset(url, decode=DECODE, cache=None if request.param else tmp_path, mmap=request.param)


def test_columns_have_the_types_that_decoders_give(dataset: mdsx.Dataset) -> None:
    types = {"image": "uint8[24,24,3]", "other": "uint8[1,*,*]?", "speech": "float32[*]", "label": "int64"}
    assert dataset.columns == types


def test_samples_are_decoded_by_number_slice_and_list(dataset: mdsx.Dataset) -> None:
    for number in (0, 7, 29):
        check(dataset[number], number)
    check(dataset[-1], N - 1)
    for number, each in zip(range(3, 9), dataset[3:9], strict=True):
        check(each, number)
    for number, each in zip([20, 3], dataset[[20, 3]], strict=True):
        check(each, number)
    for number, each in enumerate(dataset):
        check(each, number)


def test_take_gives_one_array_where_all_have_one_size(dataset: mdsx.Dataset) -> None:
    numbers = [4, 1, 19, 2]
    found = dataset.take(numbers)
    assert found["image"].shape == (4, 24, 24, 3)
    assert isinstance(found["other"], list)
    for place, number in enumerate(numbers):
        check({name: values[place] for name, values in found.items()}, number)


def test_arrow_has_the_same_values(dataset: mdsx.Dataset) -> None:
    for number, each in zip((5, 6), dataset.take([5, 6], as_arrow=True).to_pylist(), strict=True):
        wanted = expected(number)
        np.testing.assert_array_equal(np.array(each["image"], np.uint8), wanted["image"])
        assert (each["other"] is None) == (wanted["other"] is None)
        np.testing.assert_array_equal(np.array(each["speech"], np.float32), wanted["speech"])


def test_selections_copies_and_renamed_columns_are_decoded(url: str) -> None:
    dataset = pickle.loads(
        pickle.dumps(mdsx.Dataset(url, columns={"x": "other", "y": "other"}, decode={"x": DECODE["other"]}))
    )
    assert list(dataset.columns.values()) == ["uint8[1,*,*]?", "bytes?"]
    for place, number in enumerate((4, 9, 14)):
        found = dataset.select([4, 9, 14])[place]
        assert found["y"] == SAMPLES[number]["other"]
        wanted = expected(number)["other"]
        np.testing.assert_array_equal(found["x"], wanted)
    tall = mdsx.Dataset(url, decode={"image": mdsx.Image()}).filter(lambda image: len(image) > 40, ["image"])
    assert [each["label"] for each in tall] == [number for number in range(N) if number % 3]


def test_zipped_and_mixed_datasets_are_decoded(url: str) -> None:
    one = mdsx.Dataset(url, columns=["image"], decode={"image": DECODE["image"]})
    both = mdsx.zip(one, mdsx.Dataset(url, columns={"n": "label"}))
    np.testing.assert_array_equal(both[8]["image"], expected(8)["image"])
    mixed = mdsx.Mixture([one, mdsx.Dataset(url, columns=["image"], decode={"image": mdsx.Image(size=24)})])
    found = {batch["image"].tobytes() for batch in mdsx.Loader(mixed, 1)}
    whole = mdsx.Image(size=24)
    centred = {whole.decode(each["image"]).tobytes() for each in SAMPLES}
    assert len(found) > len(centred)
    assert centred <= found


@dataclass(frozen=True)
class Raw:
    """A decoder of a user: the first bytes, with the seed's last one in place of the first."""

    size: int = 4
    type: str = "uint8[4]"

    def gives(self, stored: str) -> str:
        return self.type

    def decode(self, data: bytes | memoryview, seed: int) -> NDArray[Any]:
        if bytes(data[:3]) == b"bad":
            raise ZeroDivisionError("no number of it")
        found = np.frombuffer(bytes(data), np.uint8)[: self.size].copy()
        found[0] = seed & 255
        return found


@pytest.fixture(scope="module")
def raw(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("raw") / "data"
    with mdsx.Writer(folder, {"data": "bytes"}) as out:
        for number in range(6):
            out.write({"data": b"bad!" if number == 4 else bytes(range(number, number + 6))})
    return str(folder)


def test_an_object_with_the_methods_is_a_decoder(raw: str) -> None:
    assert isinstance(Raw(), mdsx.Decoder)
    found = mdsx.Dataset(raw, decode={"data": Raw()}).take([3, 1])["data"]
    seeds = [key(0, 8, 0, number) & 255 for number in (3, 1)]
    np.testing.assert_array_equal(found, [[seeds[0], 4, 5, 6], [seeds[1], 2, 3, 4]])


def test_an_error_names_the_file_the_sample_and_the_column(raw: str, tmp_path: Path) -> None:
    dataset = mdsx.Dataset(raw, decode={"data": Raw()})
    message = r"shard\.00000\.mdsx, sample 4, column 'data': the value cannot be decoded: ZeroDivisionError: no number"
    for read in (lambda: dataset[4], lambda: dataset.take([2, 4]), lambda: dataset.take([4], as_arrow=True)):
        with pytest.raises(mdsx.CorruptError, match=message) as raised:
            read()
        assert isinstance(raised.value.__cause__, ZeroDivisionError)
    with mdsx.Writer(tmp_path / "large", {"image": "jpeg"}) as out:
        out.write({"image": jpeg(photo(40, 60))})
    small = mdsx.Dataset(tmp_path / "large", decode={"image": mdsx.Image(max_pixels=9)})
    with pytest.raises(mdsx.CorruptError, match=r"sample 0, column 'image': the picture is too large") as raised:
        small[0]
    assert str(raised.value).count("give the mdsx.Image a larger max_pixels=") == 1


@pytest.mark.parametrize(
    ("decoder", "message"),
    [
        (
            Raw(size=3),
            r"sample 0, column 'data': the decoder returned another type .*expected uint8\[4\], found uint8\[3\]",
        ),
        (Raw(type="int8[4]"), r"the decoder returned another type .*expected int8\[4\], found uint8\[4\]"),
        (Raw(type="uint8[*,*]"), "the decoder returned another type"),
    ],
)
def test_a_decoder_gives_what_it_says(raw: str, decoder: Raw, message: str) -> None:
    with pytest.raises(mdsx.UsageError, match=message):
        mdsx.Dataset(raw, decode={"data": decoder})[0]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"decode": {"data": Raw(type="uint8")}}, r"gives\(\) of a decoder must return a type .*found 'uint8'"),
        ({"decode": {"data": Raw(type="uint8[")}}, "is not a column type"),
        ({"decode": {"data": Raw(type="uint8[4]?")}}, "must return a type"),
        ({"decode": {"data": Raw(type="str[*]")}}, "must return a type"),
        ({"decode": {"data": Raw}}, "not a decoder"),
        ({"decode": {"data": str}}, "not a decoder"),
        ({"decode": {"other": Raw()}}, "there is no such column"),
        ({"decode": [Raw()]}, "decode must be a mapping from columns"),
        ({"decode": {"data": Raw()}, "dtypes": {"data": "float32"}}, "only numbers"),
        (
            {"decode": {"data": Raw()}, "columns": {"data": mdsx.Cast("data", "uint16[*]")}},
            "only columns of encoded bytes",
        ),
    ],
)
def test_what_cannot_be_decoded_is_refused(raw: str, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(mdsx.UsageError, match=message):
        mdsx.Dataset(raw, **arguments)


def test_a_column_is_decoded_once(url: str) -> None:
    dataset = mdsx.Dataset(url, decode=DECODE)
    with pytest.raises(mdsx.UsageError, match="decode, column 'image': a column with another change"):
        mdsx.Loader(dataset, 2, decode=DECODE)
    for column, found in (("label", "int64"), ("image", "jpeg")):
        decoder = mdsx.Image() if column == "label" else mdsx.Audio()
        with pytest.raises(mdsx.UsageError, match=f"found {found}") as raised:
            mdsx.Dataset(url, decode={column: decoder})
        assert column in "".join([str(raised.value), *getattr(raised.value, "__notes__", [])])


def test_lists_of_pictures_are_refused(tmp_path: Path) -> None:
    with mdsx.Writer(tmp_path / "lists", {"images": "jpeg[*]"}) as out:
        out.write({"images": [jpeg(photo(40, 60))]})
    with pytest.raises(mdsx.UsageError, match=r"only columns of encoded bytes .*found jpeg\[\*\]"):
        mdsx.Dataset(tmp_path / "lists", decode={"images": mdsx.Image()})
