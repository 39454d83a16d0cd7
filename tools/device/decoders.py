"""Decoding of JPEGs: images a second by each library, in threads, and on the GPU (nvJPEG through torchvision)."""

from __future__ import annotations

import io
import resource
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import torch

import mdsx
from mdsx.decoding import deferred
from mdsx.torch.gpu_pictures import Pictures
from tools.device.data import Bench
from tools.device.run import attempt

Decode = Callable[[bytes], Any]


def part(bench: Bench) -> dict[str, Any]:
    torch.set_num_threads(1)  # of each thread that decodes: torchvision resizes with PyTorch's operations
    images = bench.jpegs()
    found: dict[str, Any] = {"bytes of an image": sum(map(len, images)) / len(images)}
    for name, load in WHOLE.items():
        found[name] = attempt(_on_cpu, bench, load)
    for name, load in CROPPED.items():
        found[f"{name}, to 224 x 224"] = attempt(_on_cpu, bench, load)
    for size in (1, 16, 64, 256):
        found[f"torchvision on the GPU, {size} at a time"] = attempt(_on_gpu, bench, size)
    found["torchvision on the GPU, 64 at a time in 4 threads"] = attempt(_on_gpu, bench, 64, 4)
    for name, options in _GPU_IMAGES.items():
        found[f'mdsx.Image(device="cuda"), {name}, 64 at a time'] = attempt(_image_on_gpu, bench, options)
    found["pixels"] = attempt(_pixels, bench)
    return found


# --- whole images, as uint8 arrays


def _pillow() -> Decode:
    from PIL import Image

    return lambda data: np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))


def _opencv() -> Decode:
    import cv2

    cv2.setNumThreads(0)
    return lambda data: cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR)[..., ::-1]


def _torchvision() -> Decode:
    from torchvision.io import ImageReadMode, decode_jpeg

    return lambda data: decode_jpeg(as_tensor(data), ImageReadMode.RGB)


def _image() -> Decode:
    return mdsx.Image().decode


WHOLE: dict[str, Callable[[], Decode]] = {
    "Pillow": _pillow,
    "OpenCV": _opencv,
    "torchvision": _torchvision,
    "mdsx.Image": _image,
}


# --- the middle of an image, as a tensor uint8 [3, 224, 224]


def _pillow_cropped() -> Decode:
    from PIL import Image

    def decode(data: bytes) -> torch.Tensor:
        image = Image.open(io.BytesIO(data))
        image.draft("RGB", (224, 224))
        width, height = image.size
        side = min(width, height)
        box = ((width - side) / 2, (height - side) / 2, (width + side) / 2, (height + side) / 2)
        small = image.convert("RGB").resize((224, 224), Image.Resampling.BILINEAR, box=box)
        return torch.from_numpy(np.array(small)).permute(2, 0, 1)

    return decode


def _opencv_cropped() -> Decode:
    import cv2

    cv2.setNumThreads(0)

    def decode(data: bytes) -> torch.Tensor:
        image = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR)
        height, width = image.shape[:2]
        side = min(width, height)
        top, left = (height - side) // 2, (width - side) // 2
        small = cv2.resize(image[top : top + side, left : left + side], (224, 224), interpolation=cv2.INTER_AREA)
        return torch.from_numpy(cv2.cvtColor(small, cv2.COLOR_BGR2RGB)).permute(2, 0, 1)

    return decode


def _torchvision_cropped() -> Decode:
    from torchvision.io import ImageReadMode, decode_jpeg
    from torchvision.transforms.v2 import functional

    def decode(data: bytes) -> torch.Tensor:
        image = decode_jpeg(as_tensor(data), ImageReadMode.RGB)
        side = min(image.shape[-2:])
        small: torch.Tensor = functional.resize(functional.center_crop(image, [side, side]), [224, 224], antialias=True)
        return small

    return decode


def _image_cropped() -> Decode:
    image = mdsx.Image(size=224, layout="CHW")
    return lambda data: torch.from_numpy(np.ascontiguousarray(image.decode(data)))


CROPPED: dict[str, Callable[[], Decode]] = {
    "Pillow": _pillow_cropped,
    "OpenCV": _opencv_cropped,
    "torchvision": _torchvision_cropped,
    "mdsx.Image": _image_cropped,
}
_GPU_IMAGES: dict[str, dict[str, Any]] = {
    "as stored": {},
    "to 224": {"size": 224},
    "random crops": {"size": 224, "resize": "random_crop"},
}


def as_tensor(data: bytes) -> torch.Tensor:
    return torch.frombuffer(bytearray(data), dtype=torch.uint8)


def _on_cpu(bench: Bench, load: Callable[[], Decode]) -> dict[str, Any]:
    """Return rates, and what an image costs in all threads: processor time, and pages that the system gave."""
    decode, images = load(), bench.jpegs()

    def work(number: int) -> int:
        decode(images[number % len(images)])
        return 1

    one = _rate(bench, work, 1)
    before, since = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
    rate = _rate(bench, work, bench.threads)
    count, now = rate * (time.perf_counter() - since), resource.getrusage(resource.RUSAGE_SELF)
    spent = now.ru_utime + now.ru_stime - before.ru_utime - before.ru_stime
    faults = (now.ru_minflt - before.ru_minflt) / count
    return {"images/s": rate, "1 thread": one, "processor ms": spent / count * 1e3, "page faults": faults}


def _on_gpu(bench: Bench, size: int, threads: int = 1) -> dict[str, Any]:
    from torchvision.io import ImageReadMode, decode_jpeg

    images = [as_tensor(data) for data in bench.jpegs()]
    device = torch.device("cuda", torch.cuda.current_device())

    def work(number: int) -> int:
        some = [images[(number * size + each) % len(images)] for each in range(size)]
        decode_jpeg(some, ImageReadMode.RGB, device=device)
        torch.cuda.current_stream().synchronize()
        return size

    work(0)
    return {"images/s": _rate(bench, work, threads)}


def _image_on_gpu(bench: Bench, options: dict[str, Any], size: int = 64) -> dict[str, Any]:
    images, image = bench.jpegs(), mdsx.Image(**options, layout="CHW", device="cuda")
    shape = None if image.size is None else (3, 224, 224)
    device = torch.device("cuda", torch.cuda.current_device())

    def work(number: int) -> int:
        some = [number * size + each for each in range(size)]
        values = [deferred(image, images[each % len(images)], each, "an image") for each in some]
        Pictures(values, shape).to(device)
        torch.cuda.current_stream().synchronize()
        return size

    work(0)
    return {"images/s": _rate(bench, work, 1)}


def _rate(bench: Bench, work: Callable[[int], int], threads: int) -> float:
    """Return how many images a second `work` decodes, called with a number by each of these threads."""
    seconds = 0.1 if bench.small else 1.0

    def turn(first: int) -> int:
        done, number = 0, first
        while time.perf_counter() < deadline:
            done += work(number)
            number += threads
        return done

    work(0)
    with ThreadPoolExecutor(threads) as pool:
        since = time.perf_counter()
        deadline = since + seconds
        done = sum(pool.map(turn, range(threads)))
        return done / (time.perf_counter() - since)


def _pixels(bench: Bench) -> dict[str, Any]:
    """The differences of pixels from Pillow's, of 255: the largest, and the mean."""
    images, found = bench.jpegs()[:8], dict[str, Any]()
    pillow = [_pillow()(data).astype(np.int16) for data in images]

    def differences(others: list[Any]) -> str:
        gaps = [np.abs(one - np.asarray(other).astype(np.int16)) for one, other in zip(pillow, others, strict=True)]
        return f"{max(gap.max() for gap in gaps)}, {np.mean([gap.mean() for gap in gaps]):.3f}"

    for name in ("OpenCV", "torchvision"):
        decode = WHOLE[name]
        try:
            decoded = list(map(decode(), images))
        except (ImportError, RuntimeError):  # torchvision raises the latter for another PyTorch
            continue
        found[name] = differences(
            [np.asarray(each).transpose(1, 2, 0) if name == "torchvision" else each for each in decoded]
        )
    if bench.device.type == "cuda":
        from torchvision.io import ImageReadMode, decode_jpeg

        decoded = decode_jpeg([as_tensor(data) for data in images], ImageReadMode.RGB, device="cuda")
        found["nvJPEG"] = differences([each.permute(1, 2, 0).cpu().numpy() for each in decoded])
    return found
