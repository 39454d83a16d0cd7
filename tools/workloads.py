"""The samples of the benchmarks: pure functions of their numbers, the same for every loader.

- `tokens`: uint16[2048], 4 KiB each; `low-tokens` are below 256, so that they compress to half;
- `rows`: uint16[4096]; `texts`: as wide at most, of many lengths (log-normal, median 600);
- `images`: real JPEGs of about 100 kB, each with its number in a comment, so that no two are equal, and an int label;
- `text`: about 200 bytes of ASCII, and an int.

Also what several loaders do with samples: columns of a batch, Arrow arrays, decoded JPEGs.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from functools import cache
from random import Random
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tools.peers import Lazy

Image, pyarrow, torch = Lazy("PIL.Image"), Lazy("pyarrow"), Lazy("torch")

WIDTH = 2048
LONGEST = 4096  # tokens of a text
PIXELS = (384, 512, 3)  # of an image: height, width, colours
SIZES = {"tokens": 60_000, "images": 6_000, "text": 200_000}
FEW = 48  # samples that are written before the time is taken, and the least that a workload has

_PICTURES = 32
_LOREM = (
    "lorem ipsum dolor sit amet consectetur adipiscing elit sed do eiusmod tempor incididunt ut labore et dolore magna "
    "aliqua enim ad minim veniam quis nostrud exercitation ullamco laboris nisi aliquip ex ea commodo consequat duis "
    "aute irure in reprehenderit voluptate velit esse cillum fugiat nulla pariatur excepteur sint occaecat cupidatat"
)
_WORDS = _LOREM.split()


def sample(workload: str, number: int) -> dict[str, Any]:
    draw = Random(number)
    if workload == "tokens":
        return {"tokens": np.frombuffer(draw.randbytes(2 * WIDTH), np.uint16)}
    if workload == "low-tokens":
        return {"tokens": np.frombuffer(draw.randbytes(WIDTH), np.uint8).astype(np.uint16)}
    if workload == "rows":
        return {"tokens": np.frombuffer(draw.randbytes(2 * LONGEST), np.uint16)}
    if workload == "texts":
        length = min(int(draw.lognormvariate(6.4, 1.0)) + 1, LONGEST)
        return {"tokens": np.frombuffer(draw.randbytes(2 * length), np.uint16) >> 1}
    if workload == "images":
        return {"image": jpeg(number), "label": number % 1000}
    return {"text": " ".join(draw.choices(_WORDS, k=28)), "id": number}


def size_of(sample: dict[str, Any]) -> int:
    values = (value if isinstance(value, bytes | np.ndarray) else str(value).encode() for value in sample.values())
    return sum(np.frombuffer(value, np.uint8).size for value in values)


def jpeg(number: int) -> bytes:
    """A JPEG with `number` in a comment after its first marker."""
    comment = b"\xff\xfe\x00\x12" + f"{number:016}".encode()
    picture = _picture(number % _PICTURES)
    return picture[:2] + comment + picture[2:]


@cache
def _picture(number: int) -> bytes:
    """Smooth shapes with some noise, as in photographs: about 100 kB."""
    height, width, _ = PIXELS
    y, x = np.mgrid[0:height, 0:width].astype(np.float32)
    noise = np.random.default_rng(number).integers(-28, 29, PIXELS)
    waves = [np.sin(x / (9 + number + 3 * channel)) * np.cos(y / (7 + channel)) for channel in range(3)]
    picture = 128 + 80 * np.stack(waves, -1) + noise
    output = io.BytesIO()
    Image.fromarray(np.clip(picture, 0, 255).astype(np.uint8)).save(output, "JPEG", quality=90)
    return output.getvalue()


def permutation(count: int) -> NDArray[np.int64]:
    return np.random.default_rng(7).permutation(count)


def columns_of(samples: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Collate samples by columns: ints and tokens as an array, the rest as lists."""
    batch: dict[str, Any] = {name: [each[name] for each in samples] for name in samples[0]}
    arrays = {name for name, values in batch.items() if name == "tokens" or isinstance(values[0], int)}
    return {name: np.array(values) if name in arrays else values for name, values in batch.items()}


def arrow_of(values: Any) -> Any:
    """Return an Arrow array; one of lists of one length for an array [n, width]."""
    if isinstance(values, np.ndarray) and values.ndim == 2:
        return pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(values.reshape(-1)), values.shape[1])
    return pyarrow.array(values)


def pixels(image: bytes, size: int | None = None) -> Any:
    """uint8 [height, width, 3], by Pillow. With `size`: [size, size, 3], as torchvision's Resize and CenterCrop."""
    picture = Image.open(io.BytesIO(image)).convert("RGB")
    if size is not None:
        short = min(picture.size)
        wide, high = (size * side // short for side in picture.size)
        left, top = round((wide - size) / 2), round((high - size) / 2)
        resized = picture.resize((wide, high), Image.Resampling.BILINEAR)
        picture = resized.crop((left, top, left + size, top + size))
    return np.array(picture)


def decode(sample: dict[str, Any], size: int | None = None) -> dict[str, Any]:
    return {"image": torch.from_numpy(pixels(sample["image"], size)), "label": sample["label"]}


def decoding(dataset: Any, size: int | None = None) -> Any:
    class Decoding(dataset):  # type: ignore[misc]  # it ships no types
        def __getitem__(self, at: Any) -> Any:
            return decode(super().__getitem__(at), size)

    return Decoding
