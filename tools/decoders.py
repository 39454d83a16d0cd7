"""Decoders of pictures, side by side: how many a second on one core, and how far their pixels are from Pillow's.

Rates count processor time, so that other work on the machine matters little. Decoders that are not installed are left
out: `pip install opencv-python-headless torchvision torchcodec` in the project's environment adds them.
"""

from __future__ import annotations

import argparse
import importlib
import time
from collections.abc import Callable, Iterator, Sequence
from io import BytesIO
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image as Pillow

import mdsx
from tools.console import Console
from tools.pages import measured_on, put_between_marks, table
from tools.processes import ROOT

Pixels = NDArray[np.uint8]
Decode = Callable[[bytes, int | None], Pixels]
"""From a JPEG to [H, W, 3]; with a size, to a square of it, as Resize(size) and CenterCrop(size)."""

PAGE = ROOT / "docs" / "images.md"
SIZE = 224
SHAPES = ((375, 500), (768, 1024), (1536, 2048))
_PICTURES = 4  # of each shape
_SECONDS = 1.0
FULL, RESIZED = 0, 1  # the most by which a backend's pixel differs from Pillow's, without decoding at a smaller scale


class Decoder(NamedTuple):
    """`ours`: it is a backend of mdsx.Image."""

    name: str
    decode: Decode
    ours: bool = False


class Difference(NamedTuple):
    """Absolute differences of pixels from Pillow's, of 255."""

    mean: float
    most: int


def run(given: argparse.Namespace) -> int:
    """Return 0 if the backends of mdsx.Image are as near to Pillow as they should be."""
    console = Console()
    found = list(decoders())
    with console.step("Decoders: pictures a second"):
        rates = _rates(found)
    with console.step("Decoders: pixels"):
        pixels, good = _differences(found)
    text = f"{rates}\n{measured_on()}\n{pixels}"
    console.page(text)
    if given.docs:
        put_between_marks(PAGE, "decoders", "pictures", text)
    return int(not good)


def decoders() -> Iterator[Decoder]:
    """Yield those that are installed."""
    yield Decoder("Pillow, whole", whole)
    yield Decoder('`mdsx.Image(backend="turbo")`', _turbo, ours=True)
    yield Decoder('`mdsx.Image(backend="pillow")`', _pillow, ours=True)
    for name, module, decode in (
        ("OpenCV, whole", "cv2", _opencv),
        ("torchvision, whole", "torchvision.io", _torchvision),
        ("torchcodec, whole", "torchcodec.decoders", _torchcodec),
    ):
        try:
            importlib.import_module(module)
        except (ImportError, OSError, RuntimeError):  # it is there, and does not fit PyTorch
            continue
        yield Decoder(name, decode)


def photo(height: int, width: int, seed: int) -> Pixels:
    """Return shapes of all sizes with some noise, as in photographs: uint8 [height, width, 3]."""
    random = np.random.default_rng(seed)
    found = np.full((height, width, 3), 128.0)
    for cells, strength in ((4, 60), (16, 35), (64, 18), (256, 9)):
        coarse = random.normal(0, strength, (cells * height // 512 + 2, cells * width // 512 + 2, 3))
        for channel in range(3):
            layer = Pillow.fromarray(coarse[..., channel].astype(np.float32))
            found[..., channel] += np.asarray(layer.resize((width, height), Pillow.Resampling.BICUBIC))
    found += random.normal(0, 4, (height, width, 1))
    clipped: Pixels = np.clip(found, 0, 255).astype(np.uint8)
    return clipped


def jpeg(height: int, width: int, seed: int) -> bytes:
    output = BytesIO()
    Pillow.fromarray(photo(height, width, seed)).save(output, "JPEG", quality=90)
    return output.getvalue()


def whole(data: bytes, size: int | None) -> Pixels:
    """Decode all of a JPEG with Pillow, and resize it then."""
    picture = Pillow.open(BytesIO(data)).convert("RGB")
    if size is None:
        return np.asarray(picture)
    (wide, high), (left, top) = _scaled(picture.width, picture.height, size)
    resized = picture.resize((wide, high), Pillow.Resampling.BILINEAR)
    return np.asarray(resized.crop((left, top, left + size, top + size)))


def _scaled(width: int, height: int, size: int) -> tuple[tuple[int, int], tuple[int, int]]:
    """Return the size of a picture whose shorter side is `size`, and where its middle begins."""
    short = min(width, height)
    wide, high = size * width // short, size * height // short
    return (wide, high), (round((wide - size) / 2), round((high - size) / 2))


def _turbo(data: bytes, size: int | None) -> Pixels:
    return mdsx.Image(size=size, backend="turbo").decode(data)


def _pillow(data: bytes, size: int | None) -> Pixels:
    return mdsx.Image(size=size, backend="pillow").decode(data)


def _opencv(data: bytes, size: int | None) -> Pixels:
    cv2: Any = importlib.import_module("cv2")
    cv2.setNumThreads(1)
    found: Any = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR_RGB)
    if size is None:
        return np.asarray(found)
    scaled, (left, top) = _scaled(found.shape[1], found.shape[0], size)
    return np.asarray(cv2.resize(found, scaled, interpolation=cv2.INTER_AREA)[top : top + size, left : left + size])


def _torchvision(data: bytes, size: int | None) -> Pixels:
    torch, io = importlib.import_module("torch"), importlib.import_module("torchvision.io")
    return _resized_tensor(io.decode_jpeg(torch.frombuffer(bytearray(data), dtype=torch.uint8)), size)


def _torchcodec(data: bytes, size: int | None) -> Pixels:
    decoders: Any = importlib.import_module("torchcodec.decoders")
    return _resized_tensor(decoders.decode_image(data), size)


def _resized_tensor(found: Any, size: int | None) -> Pixels:
    if size is not None:
        resize = importlib.import_module("torch.nn.functional").interpolate
        (wide, high), (left, top) = _scaled(found.shape[2], found.shape[1], size)
        found = resize(found[None], size=(high, wide), mode="bilinear", antialias=True)[0]
        found = found[:, top : top + size, left : left + size]
    return np.asarray(found.permute(1, 2, 0))


def _rates(found: Sequence[Decoder]) -> str:
    rows = {decoder.name: [decoder.name] for decoder in found}
    heads = ["decoder"]
    for height, width in SHAPES:
        files = [jpeg(height, width, seed) for seed in range(_PICTURES)]
        heads += [f"{width} x {height}", f"to {SIZE}"]
        for decoder in found:
            rows[decoder.name] += [f"{rate(decoder, files, size):,.0f}" for size in (None, SIZE)]
    return table(heads, rows.values(), right=range(1, len(heads)))


def rate(decoder: Decoder, files: Sequence[bytes], size: int | None, seconds: float = _SECONDS) -> float:
    """Return how many pictures a second of one core are decoded."""
    for data in files:
        decoder.decode(data, size)
    begun, count = time.process_time(), 0
    while time.process_time() - begun < seconds:
        for data in files:
            decoder.decode(data, size)
        count += len(files)
    return count / (time.process_time() - begun)


def _differences(found: Sequence[Decoder]) -> tuple[str, bool]:
    """Return the table, and whether our backends are near Pillow where nothing is decoded at a smaller scale."""
    rows, good = list[list[str]](), True
    heads = ["mean and largest difference from Pillow, whole"]
    for height, width in SHAPES:
        heads += [f"{width} x {height}", f"to {SIZE}"]
    for decoder in found[1:]:
        row = [decoder.name]
        for height, width in SHAPES:
            files = [jpeg(height, width, seed) for seed in range(_PICTURES)]
            for size in (None, SIZE):
                each = difference(decoder, files, size)
                row.append(f"{each.mean:.2f}, {each.most}")
                if decoder.ours and (size is None or min(height, width) < 2 * SIZE):
                    good &= each.most <= (FULL if size is None else RESIZED)
        rows.append(row)
    return table(heads, rows, right=range(1, len(heads))), good


def difference(decoder: Decoder, files: Sequence[bytes], size: int | None) -> Difference:
    """Return how far the pixels of a decoder are from those of Pillow that decodes the whole pictures."""
    pairs = [(decoder.decode(data, size).astype(int), whole(data, size).astype(int)) for data in files]
    far = [np.abs(one - other) for one, other in pairs]
    return Difference(float(np.mean([each.mean() for each in far])), int(max(each.max() for each in far)))
