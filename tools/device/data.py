"""The data of the measurements: JPEGs of 512 x 384 pixels and about 100 kB, and datasets of them."""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

import mdsx
from mdsx.torch import StreamingDataLoader, StreamingDataset

HEIGHT, WIDTH = 384, 512


@dataclass
class Bench:
    """Where and how it is measured."""

    folder: Path
    device: torch.device
    threads: int
    decoder: str | None
    small: bool = False
    _made: dict[str, str] = field(default_factory=dict)
    _jpegs: list[bytes] = field(default_factory=list)

    @property
    def batch(self) -> int:
        return 16 if self.small else 256

    def jpegs(self) -> list[bytes]:
        """Return different JPEGs."""
        if not self._jpegs:
            self._jpegs = made_jpegs(8 if self.small else 128)
        return self._jpegs

    def url(self, kind: str) -> str:
        """Return a dataset: "mixed" columns, "images" of 224 x 224 pixels as uint8, or "jpegs"."""
        if kind not in self._made:
            self._made[kind] = str(self.folder / kind)
            {"mixed": _mixed, "images": _images, "jpegs": _jpegs}[kind](self, self._made[kind])
        return self._made[kind]

    def loader(self, kind: str, *, data: dict[str, Any] | None = None, **options: Any) -> StreamingDataLoader:
        """Return a loader of that dataset."""
        epoch: dict[str, Any] = {"epoch_samples": 2**20} if kind == "jpegs" else {}  # no measurement reaches its end
        made = StreamingDataset(self.url(kind), seed=7, rank=0, world_size=1, **epoch, **(data or {}))
        if "batching" not in options or "batch_size" in options:
            options = {"batch_size": self.batch, **options}
        return StreamingDataLoader(made, **options)

    def synchronize(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize()


def _mixed(bench: Bench, url: str) -> None:
    columns = {"id": "int64", "text": "str", "tokens": "uint16[*]", "image": "uint8[3,64,64]"}
    values = torch.randint(0, 256, (512, 3, 64, 64), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))
    with mdsx.Writer(url, columns) as writer:
        for number in range(300 if bench.small else 4000):
            tokens = np.arange(number % 97, dtype=np.uint16)
            row = {"id": number, "text": f"text {number}", "tokens": tokens, "image": values[number % 512].numpy()}
            writer.write(row)


def _images(bench: Bench, url: str) -> None:
    values = torch.randint(0, 256, (64, 3, 224, 224), dtype=torch.uint8, generator=torch.Generator().manual_seed(2))
    with mdsx.Writer(url, {"image": "uint8[3,224,224]", "label": "int64"}) as writer:
        for number in range(8 * bench.batch):
            writer.write({"image": values[number % 64].numpy(), "label": number % 1000})


def _jpegs(bench: Bench, url: str) -> None:
    images = bench.jpegs()
    with mdsx.Writer(url, {"image": "jpeg", "label": "int64"}) as writer:
        for number in range(12 * bench.batch):
            writer.write({"image": images[number % len(images)], "label": number % 1000})


def made_jpegs(count: int) -> list[bytes]:
    """Return JPEGs of smooth shapes and noise, whose amplitude makes them about 100 kB."""
    found, noise = list[bytes](), 22.0
    encode = _encoder()
    for smooth, grain in _made(count):
        found.append(encode(_pixels(smooth, grain, noise)))
        noise *= (100_000 / len(found[-1])) ** 0.5  # towards the size
    return found


def made_pixels(count: int) -> list[torch.Tensor]:
    """Return such pictures as uint8 [3, HEIGHT, WIDTH]."""
    return [_pixels(smooth, grain, 10.0) for smooth, grain in _made(count)]


def _made(count: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    draws = torch.Generator().manual_seed(3)
    for _ in range(count):
        small = torch.rand(1, 3, 12, 16, generator=draws) * 255
        smooth = torch.nn.functional.interpolate(small, size=(HEIGHT, WIDTH), mode="bicubic")[0]
        yield smooth, torch.randn(1, 1, HEIGHT, WIDTH, generator=draws)[0]


def _pixels(smooth: torch.Tensor, grain: torch.Tensor, noise: float) -> torch.Tensor:
    return (smooth + noise * grain).clamp(0, 255).to(torch.uint8)


def _encoder() -> Any:
    """Return an encoder of uint8 [3, H, W] at quality 90, of the first library that is there."""
    try:
        from PIL import Image
    except ImportError:
        pass
    else:

        def by_pillow(pixels: torch.Tensor) -> bytes:
            file = io.BytesIO()
            Image.fromarray(pixels.permute(1, 2, 0).numpy()).save(file, "JPEG", quality=90)
            return file.getvalue()

        return by_pillow
    import torchvision.io

    return lambda pixels: torchvision.io.encode_jpeg(pixels, quality=90).numpy().tobytes()
