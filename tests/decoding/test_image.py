"""mdsx.Image: every kind of picture becomes the pixels that Pillow gives, turned, resized and laid out as asked for."""

from __future__ import annotations

import pickle
from io import BytesIO
from typing import Any, Literal

import numpy as np
import pytest
from PIL import Image, ImageOps

import mdsx
from tests.decoding.files import ORIENTATION, Pixels, encoded, jpeg, photo

Backend = Literal["turbo", "pillow"]
BACKENDS = pytest.mark.parametrize("backend", ["turbo", "pillow"])
RESIZES: tuple[Literal["exact", "shortest", "random_crop"], ...] = ("exact", "shortest", "random_crop")
PICTURE = photo(75, 100)


def by_pillow(data: bytes, mode: str = "RGB") -> Pixels:
    with Image.open(BytesIO(data)) as picture:
        return np.asarray(ImageOps.exif_transpose(picture).convert(mode))


def difference(one: Pixels, other: Pixels) -> int:
    assert one.shape == other.shape
    return int(np.abs(one.astype(int) - other.astype(int)).max(initial=0))


@BACKENDS
@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "PPM"])
def test_each_kind_of_file_gives_pillows_pixels(kind: str, backend: Backend) -> None:
    data = encoded(PICTURE, kind)
    found = mdsx.Image(backend=backend).decode(data)
    assert found.dtype == np.uint8
    assert difference(found, by_pillow(data)) == 0


@BACKENDS
@pytest.mark.parametrize(
    "options", [{}, {"progressive": True}, {"subsampling": 0}, {"subsampling": 1}, {"quality": 30}]
)
def test_each_kind_of_jpeg_gives_pillows_pixels(options: dict[str, Any], backend: Backend) -> None:
    data = jpeg(photo(61, 83), **options)  # neither side is a multiple of a block
    assert difference(mdsx.Image(backend=backend).decode(data), by_pillow(data)) == 0


@BACKENDS
@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "TIFF"])
def test_pictures_are_turned_as_exif_says(kind: str, orientation: int, backend: Backend) -> None:
    exif = Image.Exif()
    exif[ORIENTATION] = orientation
    data = encoded(PICTURE, kind, exif=exif)
    assert difference(mdsx.Image(backend=backend).decode(data), by_pillow(data)) == 0
    chw = mdsx.Image(size=(70, 60), layout="CHW", backend=backend).decode(data)
    hwc = mdsx.Image(size=(70, 60), backend=backend).decode(encoded(by_pillow(data), "PNG"))
    assert chw.shape == (3, 70, 60)
    assert difference(chw.transpose(1, 2, 0), hwc) <= 1


@BACKENDS
@pytest.mark.parametrize("orientation", [0, 9, 65535])
def test_an_orientation_that_does_not_exist_is_ignored(orientation: int, backend: Backend) -> None:
    data = jpeg(PICTURE, orientation=orientation)
    assert difference(mdsx.Image(backend=backend).decode(data), by_pillow(data)) == 0


@BACKENDS
def test_damaged_exif_data_does_not_matter(backend: Backend) -> None:
    data = jpeg(PICTURE, orientation=6)
    at = data.index(b"Exif\0\0") + 6
    damaged = data[: at + 4] + b"\xff\xff\xff\xff" + data[at + 8 :]  # the place of the first directory
    assert mdsx.Image(backend=backend).decode(damaged).shape == (75, 100, 3)


@BACKENDS
@pytest.mark.parametrize("mode", ["RGB", "L", "RGBA"])
@pytest.mark.parametrize("stored", ["L", "RGB", "CMYK"])
def test_jpegs_of_each_colour_space_give_each_mode(
    stored: str, mode: Literal["RGB", "L", "RGBA"], backend: Backend
) -> None:
    data = encoded(Image.fromarray(PICTURE).convert(stored), "JPEG", quality=95)
    found = mdsx.Image(mode=mode, backend=backend).decode(data)
    expected = by_pillow(data, mode)
    assert found.shape == (75, 100, {"RGB": 3, "L": 1, "RGBA": 4}[mode])
    assert difference(found, expected.reshape(found.shape)) <= 1  # grey: the luma as stored, not made of RGB


@BACKENDS
@pytest.mark.parametrize("mode", ["RGB", "L", "RGBA"])
@pytest.mark.parametrize("stored", ["1", "L", "LA", "P", "RGB", "RGBA"])
def test_pngs_of_each_mode_give_each_mode(stored: str, mode: Literal["RGB", "L", "RGBA"], backend: Backend) -> None:
    picture = Image.fromarray(photo(40, 50, 4)).convert(stored)
    data = encoded(picture)
    found = mdsx.Image(mode=mode, backend=backend).decode(data)
    expected = picture.convert("RGB").convert(mode) if (stored, mode) == ("P", "L") else picture.convert(mode)
    assert difference(found, np.asarray(expected).reshape(found.shape)) == 0


@BACKENDS
@pytest.mark.parametrize("transparency", [3, bytes(range(0, 256, 16))])
def test_a_palette_with_transparency_keeps_colours_and_alpha(transparency: int | bytes, backend: Backend) -> None:
    palette = [(number * 7) % 256 for number in range(48)]
    picture = Image.fromarray((np.arange(64) % 16).astype(np.uint8).reshape(8, 8), "L")
    paletted = Image.new("P", (8, 8))
    paletted.frombytes(picture.tobytes())
    paletted.putpalette(palette)
    data = encoded(paletted, transparency=transparency)
    colours = np.array(palette, np.uint8).reshape(16, 3)[(np.arange(64) % 16).reshape(8, 8)]
    assert difference(mdsx.Image(backend=backend).decode(data), colours) == 0
    alpha = mdsx.Image(mode="RGBA", backend=backend).decode(data)[..., 3].reshape(-1)
    index = np.arange(64) % 16
    expected = np.where(index == transparency, 0, 255) if isinstance(transparency, int) else index * 16
    np.testing.assert_array_equal(alpha, expected)


@BACKENDS
@pytest.mark.parametrize("mode", ["RGB", "L"])
def test_pixels_of_16_bits_become_their_higher_byte(mode: Literal["RGB", "L"], backend: Backend) -> None:
    values = np.arange(0, 65536, 64, dtype=np.uint16).reshape(32, 32)
    for kind in ("PNG", "TIFF"):
        data = encoded(Image.fromarray(values), kind)
        found = mdsx.Image(mode=mode, backend=backend).decode(data)
        np.testing.assert_array_equal(found[..., 0], values >> 8)


@BACKENDS
def test_an_animation_gives_its_first_picture(backend: Backend) -> None:
    frames = [Image.fromarray(photo(20, 30, seed=seed)) for seed in range(3)]
    data = encoded(frames[0], "WEBP", save_all=True, append_images=frames[1:], lossless=True)
    assert difference(mdsx.Image(backend=backend).decode(data), np.asarray(frames[0])) == 0


@BACKENDS
@pytest.mark.parametrize("shape", [(75, 100), (100, 75), (64, 64), (40, 301), (700, 333)])
@pytest.mark.parametrize("size", [32, 64, 96])
def test_shortest_is_resize_and_center_crop(size: int, shape: tuple[int, int], backend: Backend) -> None:
    """As torchvision's Resize(size) and CenterCrop(size) with Pillow."""
    picture = Image.fromarray(photo(*shape))
    width, height = picture.size
    scaled = (size, int(size * height / width)) if width <= height else (int(size * width / height), size)
    left, top = round((scaled[0] - size) / 2), round((scaled[1] - size) / 2)
    resized = picture.resize(scaled, Image.Resampling.BILINEAR)
    expected = np.asarray(resized.crop((left, top, left + size, top + size)))
    found = mdsx.Image(size=size, backend=backend).decode(encoded(picture))
    assert difference(found, expected) <= 1


@BACKENDS
def test_exact_resizes_to_the_size(backend: Backend) -> None:
    picture = Image.fromarray(PICTURE)
    expected = np.asarray(picture.resize((31, 47), Image.Resampling.BILINEAR))
    found = mdsx.Image(size=(47, 31), resize="exact", backend=backend).decode(encoded(picture))
    assert difference(found, expected) <= 1


@BACKENDS
def test_a_picture_of_the_size_stays_as_it_is(backend: Backend) -> None:
    for resize in RESIZES[:2]:
        found = mdsx.Image(size=(75, 100), resize=resize, backend=backend).decode(encoded(PICTURE))
        assert difference(found, PICTURE) == 0


@BACKENDS
@pytest.mark.parametrize("resize", ["exact", "shortest"])
@pytest.mark.parametrize("orientation", [1, 3, 6])
@pytest.mark.parametrize("shape", [(448, 448), (613, 901), (1200, 900)])
def test_a_large_jpeg_is_decoded_smaller_and_looks_alike(
    shape: tuple[int, int], orientation: int, resize: Literal["exact", "shortest"], backend: Backend
) -> None:
    """Decoding at 1/2, 1/4 or 1/8 changes pixels by little, and moves nothing."""
    picture = photo(*shape)
    data = jpeg(picture, orientation=orientation)
    found = mdsx.Image(size=112, resize=resize, backend=backend).decode(data)
    whole = mdsx.Image(size=112, resize=resize, backend=backend).decode(encoded(by_pillow(data)))
    assert np.abs(found.astype(int) - whole.astype(int)).mean() < 1.5


@pytest.mark.parametrize("mode", ["RGB", "L", "RGBA"])
@pytest.mark.parametrize("resize", ["exact", "shortest", "random_crop"])
@pytest.mark.parametrize("shape", [(75, 100), (613, 901)])
def test_backends_differ_by_1_at_most(
    shape: tuple[int, int], resize: Literal["exact", "shortest", "random_crop"], mode: Literal["RGB", "L", "RGBA"]
) -> None:
    for data in (jpeg(photo(*shape)), encoded(photo(*shape, 4))):
        for seed in range(5):
            one, other = (
                mdsx.Image(size=56, mode=mode, resize=resize, backend=backend).decode(data, seed)
                for backend in ("turbo", "pillow")
            )
            assert difference(one, other) <= 1


@BACKENDS
def test_random_crop_depends_on_the_seed_only(backend: Backend) -> None:
    image = mdsx.Image(size=48, resize="random_crop", backend=backend)
    data = jpeg(photo(200, 300))
    found = [image.decode(data, seed) for seed in range(8)]
    again = [pickle.loads(pickle.dumps(image)).decode(memoryview(data), seed) for seed in range(8)]
    for one, other in zip(found, again, strict=True):
        np.testing.assert_array_equal(one, other)
    assert len({one.tobytes() for one in found}) == 8


def test_it_is_a_value() -> None:
    image = mdsx.Image(size=(224, 192), resize="random_crop", scale=(0.35, 1))
    assert pickle.loads(pickle.dumps(image)) == image
    assert hash(image) == hash(mdsx.Image(size=(224, 192), resize="random_crop", scale=(0.35, 1.0)))
    assert image != mdsx.Image(size=(224, 192), resize="random_crop")
    assert eval(repr(image), {"Image": mdsx.Image}) == image
    with pytest.raises(AttributeError):
        image.size = 3  # type: ignore[misc]


@pytest.mark.parametrize(
    ("image", "expected"),
    [
        (mdsx.Image(), "uint8[*,*,3]"),
        (mdsx.Image(mode="L", layout="CHW"), "uint8[1,*,*]"),
        (mdsx.Image(size=224), "uint8[224,224,3]"),
        (mdsx.Image(size=(32, 64), mode="RGBA", layout="CHW"), "uint8[4,32,64]"),
    ],
)
def test_it_says_what_it_gives(image: mdsx.Image, expected: str) -> None:
    assert [image.gives(stored) for stored in ("bytes", "jpeg", "png", "webp")] == [expected] * 4
    with pytest.raises(mdsx.UsageError, match=r"mdsx.Image cannot decode this column .*found str"):
        image.gives("str")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"size": 0}, "size of an mdsx.Image .*found 0"),
        ({"size": (224,)}, "size of an mdsx.Image"),
        ({"size": 224.0}, "size of an mdsx.Image"),
        ({"size": True}, "size of an mdsx.Image"),
        ({"resize": "exact"}, "resize needs a size"),
        ({"size": 8, "resize": "center"}, "resize of an mdsx.Image"),
        ({"mode": "BGR"}, "mode of an mdsx.Image .*expected 'RGB'"),
        ({"layout": "NCHW"}, "layout of an mdsx.Image"),
        ({"backend": "cv2"}, "backend of an mdsx.Image"),
        ({"size": 8, "scale": (0, 1)}, "scale of an mdsx.Image"),
        ({"size": 8, "scale": 0.5}, "scale of an mdsx.Image must be two numbers"),
        ({"size": 8, "ratio": (2, 1)}, "ratio of an mdsx.Image"),
        ({"max_pixels": 0}, "max_pixels must be an integer of at least 1"),
    ],
)
def test_invalid_arguments_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(mdsx.UsageError, match=message):
        mdsx.Image(**arguments)


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "simplejpeg", None)
    with pytest.raises(mdsx.UsageError, match=r"pip install 'mdsx\[images\]', or give backend='pillow'"):
        mdsx.Image()
    assert mdsx.Image(backend="pillow").decode(jpeg(PICTURE)).shape == (75, 100, 3)
    monkeypatch.setitem(__import__("sys").modules, "PIL.Image", None)
    with pytest.raises(mdsx.UsageError, match=r"needs the package Pillow"):
        mdsx.Image(backend="pillow")


def test_a_jpeg_that_stays_as_it_is_is_decoded_where_it_is_to_be() -> None:
    """Any other picture is returned as another array."""
    plain, turned, small = jpeg(photo(40, 60)), jpeg(photo(40, 60), orientation=3), jpeg(photo(30, 60))
    out = np.zeros((40, 60, 3), np.uint8)
    for image in (mdsx.Image(), mdsx.Image(size=(40, 60)), mdsx.Image(size=(40, 60), resize="exact")):
        out[...] = 0
        assert image.decode(plain, 0, out) is out
        np.testing.assert_array_equal(out, image.decode(plain))
        for other in (turned, small, encoded(photo(40, 60))):
            found = image.decode(other, 0, out)
            assert not np.shares_memory(found, out)
            np.testing.assert_array_equal(found, image.decode(other))
    part = mdsx.Image(size=(40, 60), resize="random_crop", scale=(0.3, 0.5))
    assert part.decode(plain, 0, out) is not out
    assert mdsx.Image(layout="CHW").decode(plain, 0, out) is not out
    assert mdsx.Image(mode="L").decode(plain, 0, out) is not out
    with pytest.raises(mdsx.CorruptError):
        mdsx.Image().decode(plain[:900], 0, out)
