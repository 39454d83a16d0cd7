"""mdsx.Image(device="cuda"): what the GPU makes of pictures, in every way of making batches.

The one function that calls nvJPEG is replaced here by mdsx's own decoder, and the device is the processor: there is no
GPU where these tests run. All the rest is the real thing: which pictures go to the GPU, how they are cropped, resized,
turned and joined, what becomes of those that nvJPEG refuses, and how errors arrive. `python3 -m tools device` compares
the pixels of nvJPEG itself on a machine with a GPU.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image as PillowImage

import mdsx
from mdsx.torch import StreamingDataLoader, StreamingDataset
from mdsx.torch.gpu_pictures import Pictures
from tests.decoding.files import encoded, jpeg, photo

from .device_model import Cuda, OnDevice, OnHost

N, BATCH = 41, 6
REFUSED = b"\xff\xfe\x00\x09refused"  # a comment in a JPEG, for which the stand-in fails as nvJPEG does
COLUMNS = {"image": "bytes", "large": "jpeg", "maybe": "jpeg?", "id": "int64"}
WAYS: dict[str, dict[str, Any]] = {
    "a thread": {},
    "3 threads": {"num_threads": 3},
    "2 workers": {"num_workers": 2},
    "spawned workers": {"num_workers": 2, "multiprocessing_context": "spawn"},
}
Resize = Literal["shortest", "exact", "random_crop"]


def stand_in(encoded: list[torch.Tensor], mode: Any, device: torch.device) -> list[torch.Tensor]:
    """Decode on the processor. Fail for all of them if one fails, as torchvision does."""
    found = list[torch.Tensor]()
    for each in encoded:
        data = each.numpy().tobytes()
        if REFUSED in data:
            raise RuntimeError("Error while decoding JPEG images: nvjpegDecode failed: 4")
        try:
            pixels = mdsx.Image(mode=mode, layout="CHW").decode(without_orientation(data))
        except mdsx.CorruptError as error:
            raise RuntimeError(str(error)) from error
        found.append(torch.from_numpy(np.ascontiguousarray(pixels)).to(device))
    return found


def without_orientation(data: bytes) -> bytes:
    """nvJPEG does not turn pictures."""
    return data.replace(b"Exif\0\0", b"None\0\0")


@pytest.fixture(autouse=True)
def nvjpeg(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mdsx.torch.gpu_pictures.nvjpeg", stand_in)
    monkeypatch.setattr("mdsx.torch.gpu_pictures.check_nvjpeg", lambda: None)
    monkeypatch.setattr("mdsx.torch.gpu_pictures.DEVICE", "cpu")


def pictures() -> Iterator[bytes]:
    """Pictures that go to the GPU, and pictures that do not."""
    for number in itertools.count():
        pixels = photo(40 + number % 3, 60, seed=number)
        data = jpeg(pixels, orientation=1 + number % 8)
        yield data
        yield jpeg(pixels[..., 0])  # grey
        yield encoded(pixels)  # PNG
        yield data[:2] + REFUSED + data[2:]
        yield encoded(PillowImage.fromarray(pixels).convert("CMYK"), "JPEG")
        yield encoded(PillowImage.fromarray(pixels), "JPEG", keep_rgb=True)


def write(folder: Path, damaged: frozenset[int] = frozenset()) -> str:
    with mdsx.Writer(folder, COLUMNS, shard_size="60kB") as out:
        for number, data in zip(range(N), pictures(), strict=False):
            plain = jpeg(photo(40 + number % 3, 60, seed=number))
            cut = data[: len(data) // 2]
            maybe = None if number % 2 == 1 else plain
            image = cut if number in damaged else data
            out.write({"image": image, "large": plain, "maybe": maybe, "id": number})
    return str(folder)


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write(tmp_path_factory.mktemp("gpu") / "data")


def decoding(device: Any, **options: Any) -> dict[str, mdsx.Decoder]:
    return {
        "image": mdsx.Image(size=32, resize="random_crop", scale=(0.5, 1), layout="CHW", device=device, **options),
        "large": mdsx.Image(device=device, **options),
        "maybe": mdsx.Image(size=(36, 30), device=device, **options),
    }


def loader(url: str, device: str = "cuda", decode: Any = None, **options: Any) -> StreamingDataLoader:
    decode = decoding(device) if decode is None else decode
    data = StreamingDataset(url, seed=7, decode=decode, rank=0, world_size=1)
    return StreamingDataLoader(data, BATCH, device="cpu", **{"drop_last": False, **options})


def close(one: Any, other: Any, most: int = 1) -> bool:
    if isinstance(one, list):
        return len(one) == len(other) and all(close(*pair, most) for pair in zip(one, other, strict=True))
    if one is None or other is None:
        return one is other
    difference = one.int() - other.int()
    assert (one.dtype, one.shape) == (other.dtype, other.shape)
    return bool((difference.abs().float().mean() <= most).item())


def same(one: Any, other: Any) -> bool:
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    return one is other is None or torch.equal(one, other)


# --- pixels


def on_gpu(image: mdsx.Image, *data: bytes, seeds: tuple[int, ...] = ()) -> list[NDArray[np.int16]]:
    from mdsx.decoding import deferred

    values = [deferred(image, each, seed, "here") for each, seed in itertools.zip_longest(data, seeds, fillvalue=0)]  # type: ignore[arg-type]
    assert None not in values
    found = Pictures(values, None).to(torch.device("cpu"))
    return [np.asarray(each).astype(np.int16) for each in found if each is not None]


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("resize", ["shortest", "exact", "random_crop"])
@pytest.mark.parametrize("mode", ["RGB", "L"])
@pytest.mark.parametrize("layout", ["HWC", "CHW"])
def test_pixels_are_those_of_the_processor(orientation: int, resize: Resize, mode: Any, layout: Any) -> None:
    """Within 1 of 255; but at the edge of a random part, whose pixels do not see those beyond it."""
    for shape in ((75, 100), (100, 75), (61, 61), (40, 201)):
        data = jpeg(photo(*shape), orientation=orientation)
        for size in (64, (39, 47), (90, 70)):
            options: dict[str, Any] = {"size": size, "resize": resize, "mode": mode, "scale": (0.6, 1.0)}
            gpu, cpu = (mdsx.Image(**options, layout=layout, device=each) for each in ("cuda", "cpu"))
            (found,), expected = on_gpu(gpu, data, seeds=(5,)), cpu.decode(data, 5).astype(np.int16)
            assert found.shape == expected.shape
            gap = np.abs(found - expected)
            if resize == "random_crop":
                gap = gap[3:-3, 3:-3] if layout == "HWC" else gap[:, 3:-3, 3:-3]
            print(orientation, resize, size, shape, gap.max(), gap.mean())
