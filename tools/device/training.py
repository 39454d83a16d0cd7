"""ResNet-50 fed by mdsx: milliseconds a step, beside the same model with data that is on the device already."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch

import mdsx
from tools.device.data import Bench
from tools.device.decoders import CROPPED, as_tensor
from tools.device.run import attempt

Step = Callable[[torch.Tensor, torch.Tensor], None]


def part(bench: Bench) -> dict[str, Any]:
    torch.set_num_threads(1)  # of each thread that decodes
    name, step = bench.decoder or "image", _model(bench)
    found: dict[str, Any] = {"decoder": name}
    device, threads = bench.device, bench.threads
    found["on the device already"] = attempt(_measured, bench, step, partial(_same, bench), None)
    ways: dict[str, tuple[dict[str, Any], bool | None]] = {
        f'device="cuda", {threads} threads': ({"device": device, "num_threads": threads}, None),
        f'device="cuda", {max(threads - 2, 1)} threads': ({"device": device, "num_threads": max(threads - 2, 1)}, None),
        f'device="cuda", {threads} workers': ({"device": device, "num_workers": threads}, None),
        f"pin_memory, non_blocking, {threads} threads": ({"pin_memory": True, "num_threads": threads}, True),
        f'batch.to("cuda"), {threads} threads': ({"num_threads": threads}, False),
    }
    for way, (options, non_blocking) in ways.items():
        loader = bench.loader("jpegs", data=decoding(name), **options)
        found[way] = attempt(_measured, bench, step, partial(_endless, bench, loader, non_blocking), loader)
    if device.type == "cuda":
        for crop in ("shortest", "random_crop"):
            image = mdsx.Image(size=224, resize=crop, layout="CHW", device="cuda")
            loader = bench.loader("jpegs", data={"decode": {"image": image}}, device=device, num_threads=2)
            work = partial(_endless, bench, loader, None)
            found[f'Image(device="cuda"), {crop}, 2 threads'] = attempt(_measured, bench, step, work, loader)
        loader = bench.loader("jpegs", num_threads=2)
        found["nvJPEG in the loop"] = attempt(_measured, bench, step, partial(_by_nvjpeg, bench, loader), loader)
    return found


def decoding(name: str) -> dict[str, Any]:
    """Return what a dataset is given so that its images come as uint8 [3, 224, 224]."""
    if name == "image":
        return {"decode": {"image": mdsx.Image(size=224, layout="CHW")}}
    return {"transform": Decoded(name)}


class Decoded:
    """A transform that decodes the image of a sample. A worker process loads the library itself."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._decode: Any = None

    def __getstate__(self) -> dict[str, Any]:
        return {"_name": self._name, "_decode": None}

    def __call__(self, sample: Any) -> Any:
        if self._decode is None:
            self._decode = {key.lower(): load for key, load in CROPPED.items()}[self._name]()
        return {**sample, "image": self._decode(sample["image"])}


def _model(bench: Bench) -> Step:
    """Return a step of training: ResNet-50, bfloat16, channels last."""
    torch.backends.cudnn.benchmark = True
    model = _network(bench).to(bench.device, memory_format=torch.channels_last)  # type: ignore[call-overload]
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9, foreach=True)
    mean = torch.tensor([124.0, 116.0, 104.0], device=bench.device).view(1, 3, 1, 1)

    def step(image: torch.Tensor, label: torch.Tensor) -> None:
        values = ((image - mean) / 58.0).contiguous(memory_format=torch.channels_last)
        with torch.autocast(bench.device.type, torch.bfloat16):
            loss = torch.nn.functional.cross_entropy(model(values), label)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()

    return step


def _network(bench: Bench) -> torch.nn.Module:
    if bench.small:
        first = torch.nn.Conv2d(3, 8, 7, 4)
        return torch.nn.Sequential(first, torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(8, 1000))
    from torchvision.models import resnet50

    found: torch.nn.Module = resnet50(weights=None)
    return found


def _measured(bench: Bench, step: Step, source: Callable[[], Iterator[Any]], loader: Any) -> dict[str, Any]:
    batches = source()
    warm, count = (1, 2) if bench.small else (8, 32)
    for _ in range(warm):
        step(*next(batches))
    bench.synchronize()
    before, since = None if loader is None else loader.stats(), time.perf_counter()
    for _ in range(count):
        step(*next(batches))
    bench.synchronize()
    milliseconds = (time.perf_counter() - since) / count * 1e3
    found = {"ms a step": milliseconds, "images/s": bench.batch / milliseconds * 1e3}
    if loader is not None:
        found["waiting ms"] = (loader.stats() - before).waited / count * 1e3
    return found


def _same(bench: Bench) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    images = torch.randint(0, 256, (bench.batch, 3, 224, 224), dtype=torch.uint8, device=bench.device)
    labels = torch.randint(0, 1000, (bench.batch,), device=bench.device)
    while True:
        yield images, labels


def _endless(bench: Bench, loader: Any, non_blocking: bool | None) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Yield images and labels. `non_blocking`: how the loop copies them; None if they are on the device."""
    while True:
        for batch in loader:
            image, label = batch["image"], batch["label"]
            if non_blocking is not None:
                image = image.to(bench.device, non_blocking=non_blocking)
                label = label.to(bench.device, non_blocking=non_blocking)
            del batch
            yield image, label


def _by_nvjpeg(bench: Bench, loader: Any) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    from torchvision.io import ImageReadMode, decode_jpeg

    while True:
        for batch in loader:
            some = decode_jpeg([as_tensor(data) for data in batch["image"]], ImageReadMode.RGB, device=bench.device)
            images = torch.stack(some)[..., 64:448].float()
            small = torch.nn.functional.interpolate(images, size=(224, 224), mode="bilinear", antialias=True)
            yield small, batch["label"].to(bench.device)
