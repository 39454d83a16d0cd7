"""The samples of the benchmarks: pure functions of their numbers, cheap to make, the same for every loader.

- `tokens`: uint16[2048], 4 KiB each;
- `images`: real JPEGs of about 100 kB, each with its number in a comment, so that no two are equal, and an int label;
- `text`: about 200 bytes of ASCII, and an int;
- `mixed`: text, int, float32[*] of 8 to 71 numbers, JSON.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from functools import cache, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

WIDTH = 2048
PIXELS = (384, 512, 3)  # of an image: height, width, colours
SIZES = {"tokens": 60_000, "images": 6_000, "text": 200_000, "mixed": 100_000}

_PICTURES = 32
_LOREM = (
    "lorem ipsum dolor sit amet consectetur adipiscing elit sed do eiusmod tempor incididunt ut labore et dolore magna "
    "aliqua enim ad minim veniam quis nostrud exercitation ullamco laboris nisi aliquip ex ea commodo consequat duis "
    "aute irure in reprehenderit voluptate velit esse cillum fugiat nulla pariatur excepteur sint occaecat cupidatat"
)
_WORDS = _LOREM.split()
FEW = 48  # samples that are written before the time is taken, and the least that a workload has
_BLOCK = 1000


def samples_of(workload: str, scale: float) -> int:
    """How many samples a workload has; at least a few batches, however small the scale."""
    return max(int(SIZES[workload] * scale), FEW)


def columns(workload: str, first: int, stop: int) -> dict[str, Any]:
    """Samples `first` up to `stop`, column by column: arrays [n, ...], or lists of n values."""
    numbers = np.arange(first, stop, dtype=np.uint64)
    if workload == "tokens":
        return {"tokens": tokens(numbers)}
    ids = numbers.astype(np.int64)
    if workload == "images":
        return {"image": [jpeg(number) for number in range(first, stop)], "label": ids % 1000}
    texts = _texts(numbers, 4)
    if workload == "text":
        return {"text": texts, "id": ids}
    lengths = (8 + mix(numbers ^ np.uint64(5)) % np.uint64(64)).astype(np.int64)
    vectors = [np.arange(length, dtype=np.float32) / 8 + first for first, length in zip(ids % 97, lengths, strict=True)]
    meta = [{"source": f"site{number % 50}", "page": number, "tags": ["a", "b"]} for number in range(first, stop)]
    return {"text": texts, "id": ids, "vector": [np.asarray(each, np.float32) for each in vectors], "meta": meta}


def rows(batch: dict[str, Any]) -> list[dict[str, Any]]:
    """The same samples one by one: dicts, ints as Python's own."""
    names = list(batch)
    values = [batch[name].tolist() if _is_ids(batch[name]) else list(batch[name]) for name in names]
    return [dict(zip(names, row, strict=True)) for row in zip(*values, strict=True)]


def maker(workload: str) -> Callable[[int], dict[str, Any]]:
    """Return a function that makes the sample with a number; fast where the numbers follow one another."""

    @lru_cache(2)
    def block(number: int) -> list[dict[str, Any]]:
        return rows(columns(workload, number * _BLOCK, (number + 1) * _BLOCK))

    return lambda number: block(number // _BLOCK)[number % _BLOCK]


def size_of(batch: dict[str, Any]) -> int:
    """Bytes of the values."""
    return sum(
        values.nbytes if isinstance(values, np.ndarray) else sum(len(_bytes(value)) for value in values)
        for values in batch.values()
    )


def mix(numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """SplitMix64's finalizer: numbers that look random."""
    numbers = numbers * np.uint64(0x9E3779B97F4A7C15)
    numbers = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    numbers = (numbers ^ (numbers >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return numbers ^ (numbers >> np.uint64(31))


def tokens(numbers: NDArray[np.uint64]) -> NDArray[np.uint16]:
    """[n, WIDTH], of the numbers of samples."""
    lines = mix(np.arange(WIDTH // 4, dtype=np.uint64))[None, :] ^ mix(numbers)[:, None]
    return (lines * np.uint64(0xD1342543DE82EF95)).view(np.uint16)


def random_numbers(samples: int, count: int) -> NDArray[np.int64]:
    """`count` numbers of samples, as if drawn at random."""
    return (mix(np.arange(count, dtype=np.uint64)) % np.uint64(samples)).astype(np.int64)


def permutation(count: int) -> list[int]:
    """0 up to `count` in a random order."""
    found: list[int] = np.argsort(mix(np.arange(count, dtype=np.uint64))).tolist()
    return found


def jpeg(number: int) -> bytes:
    """A JPEG with `number` in a comment after its first marker."""
    comment = b"\xff\xfe\x00\x12" + f"{number:016}".encode()
    picture = _pictures()[number % _PICTURES]
    return picture[:2] + comment + picture[2:]


@cache
def _pictures() -> Sequence[bytes]:
    from PIL import Image

    found = []
    for number in range(_PICTURES):  # smooth shapes with some noise, as in photographs: about 100 kB
        height, width, _ = PIXELS
        y, x = np.mgrid[0:height, 0:width].astype(np.float32)
        noise = mix(np.arange(np.prod(PIXELS), dtype=np.uint64) + np.uint64(number << 32)).astype(np.uint8)
        waves = [np.sin(x / (9 + number + 3 * channel)) * np.cos(y / (7 + channel)) for channel in range(3)]
        picture = 128 + 80 * np.stack(waves, -1) + (noise.reshape(PIXELS).astype(np.float32) - 128) / 5
        output = io.BytesIO()
        Image.fromarray(np.clip(picture, 0, 255).astype(np.uint8)).save(output, "JPEG", quality=90)
        found.append(output.getvalue())
    return found


@cache
def _phrases() -> Sequence[str]:
    words = mix(np.arange(1024 * 7, dtype=np.uint64)) % np.uint64(len(_WORDS))
    return [" ".join(_WORDS[int(word)] for word in line) for line in words.reshape(1024, 7)]


def _texts(numbers: NDArray[np.uint64], phrases: int) -> list[str]:
    chosen = mix(numbers)
    picked = [(chosen >> np.uint64(10 * place)) % np.uint64(1024) for place in range(phrases)]
    table = _phrases()
    return [" ".join([table[place] for place in line]) for line in np.stack(picked, -1).tolist()]


def lorem(number: int) -> str:
    """200 words."""
    words = mix(np.arange(200, dtype=np.uint64) + np.uint64(number * 200)) % np.uint64(len(_WORDS))
    return " ".join([_WORDS[word] for word in words.tolist()])


def _is_ids(values: object) -> bool:
    return isinstance(values, np.ndarray) and values.ndim == 1


def _bytes(value: Any) -> bytes | memoryview:
    if isinstance(value, dict):
        return repr(value).encode()
    return value.encode() if isinstance(value, str) else memoryview(value).cast("B")
