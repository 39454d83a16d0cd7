"""mdsx.Image(device="cuda") beside mdsx.Image() on the processor: the differences of their pixels, and their errors."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import torch

import mdsx
from mdsx.torch import StreamingDataLoader, StreamingDataset
from tools.device.data import HEIGHT, WIDTH, Bench, made_pixels
from tools.device.run import attempt

_BATCH = 16
_MEAN, _LARGEST = 3.0, 80  # of 255: beyond these, something else than rounding and chroma differs
_RESIZES: dict[str, dict[str, Any]] = {
    "as stored": {},
    "shortest": {"size": 224},
    "exact": {"size": (200, 240), "resize": "exact"},
    "random_crop": {"size": 192, "resize": "random_crop", "scale": (0.6, 1.0)},
    "as large": {"size": (HEIGHT, WIDTH)},
    "L": {"size": 224, "mode": "L"},
    "CHW": {"size": 224, "layout": "CHW"},
}


def rows(bench: Bench) -> dict[str, Any]:
    """Return a row for each way of resizing, and one for each kind of picture."""
    found = dict[str, Any]()
    for name, options in _RESIZES.items():
        found[f"pictures, {name}"] = attempt(_compared, bench, options)
    for kind in _kinds():
        found[f"pictures, as stored: {kind}"] = attempt(_compared, bench, {}, kind)
    found["pictures, in batches of other sizes"] = attempt(_other_batches, bench)
    found["pictures, one of them cut"] = attempt(_cut, bench)
    return found


def _kinds() -> dict[str, Any]:
    """Return how each kind of picture is made of a Pillow image, and Pillow's options."""
    turned = {f"orientation {number}": ("RGB", "JPEG", {"exif": _exif(number)}) for number in (3, 6, 8)}
    return {
        "4:2:0": ("RGB", "JPEG", {}),
        "4:4:4": ("RGB", "JPEG", {"subsampling": 0}),
        "progressive": ("RGB", "JPEG", {"progressive": True}),
        "grey": ("L", "JPEG", {}),
        **turned,
        "PNG": ("RGB", "PNG", {}),
        "CMYK": ("CMYK", "JPEG", {}),
    }


def _exif(orientation: int) -> Any:
    from PIL import Image

    exif = Image.Exif()
    exif[0x0112] = orientation
    return exif


def _files(kind: str | None) -> list[bytes]:
    """Return pictures of one kind, or of all in turn."""
    from PIL import Image

    ways = _kinds()
    chosen = list(ways.values()) if kind is None else [ways[kind]]
    found = list[bytes]()
    for number, pixels in enumerate(made_pixels(18 if kind is None else 4)):
        mode, file_format, options = chosen[number % len(chosen)]
        image = Image.fromarray(pixels.permute(1, 2, 0).numpy()[: HEIGHT - number % 3 * 16])
        file = io.BytesIO()
        image.convert(mode).save(file, file_format, **({"quality": 90} if file_format == "JPEG" else {}), **options)
        found.append(file.getvalue())
    return found


def _written(bench: Bench, name: str, files: list[bytes]) -> str:
    url = bench.folder / f"pictures {name.replace(':', '')}"
    if not url.exists():
        with mdsx.Writer(url, {"image": "bytes", "id": "int64"}) as writer:
            for number, data in enumerate(files):
                writer.write({"image": data, "id": number})
    return str(url)


def _decoded(
    bench: Bench, url: str, options: dict[str, Any], device: Any, batch: int = _BATCH, **ways: Any
) -> list[np.ndarray[Any, Any]]:
    data = StreamingDataset(url, seed=3, decode={"image": mdsx.Image(**options, device=device)}, rank=0, world_size=1)
    found = dict[int, np.ndarray[Any, Any]]()
    for made in StreamingDataLoader(data, batch, drop_last=False, device=bench.device, **ways):
        for number, image in zip(made["id"].tolist(), made["image"], strict=True):
            if image.device.type != bench.device.type:
                raise AssertionError(f"a picture is on {image.device}")
            found[number] = image.cpu().numpy()
    return [found[number] for number in sorted(found)]


def _compared(bench: Bench, options: dict[str, Any], kind: str | None = None) -> dict[str, Any]:
    url = _written(bench, str(kind), _files(kind))
    cpu, gpu = _decoded(bench, url, options, "cpu"), _decoded(bench, url, options, "cuda")
    if [each.shape for each in cpu] != [each.shape for each in gpu]:
        raise AssertionError("pictures have other sizes")
    gaps = [np.abs(one.astype(np.int16) - other.astype(np.int16)) for one, other in zip(cpu, gpu, strict=True)]
    means, largest = [float(gap.mean()) for gap in gaps], int(max(gap.max() for gap in gaps))
    found = {"pictures": len(gaps), "mean": float(np.mean(means)), "worst mean": max(means), "largest": largest}
    if max(means) > _MEAN or largest > _LARGEST:
        raise AssertionError(f"pixels differ: {found}")
    return found


def _other_batches(bench: Bench) -> dict[str, Any]:
    """Batches of another size, in threads and workers, have the same bits."""
    url, options = _written(bench, "None", _files(None)), _RESIZES["random_crop"]
    expected = _decoded(bench, url, options, "cuda")
    ways: list[tuple[int, dict[str, Any]]] = [(1, {}), (7, {"num_threads": 3}), (5, {"num_workers": 2})]
    for batch, way in ways:
        found = _decoded(bench, url, options, "cuda", batch, **way)
        if not all(map(np.array_equal, expected, found)):
            raise AssertionError(f"batches of {batch} have other pixels, with {way}")
    return {"pictures": len(expected) * len(ways)}


def _cut(bench: Bench) -> dict[str, Any]:
    files = _files("4:2:0")
    whole = files[2]
    files[2] = whole[: len(whole) // 2]
    url = _written(bench, "cut", files)
    try:
        _decoded(bench, url, {"size": 224}, "cuda")
    except mdsx.CorruptError as error:
        if "sample 2, column 'image'" not in str(error):
            raise AssertionError(f"the error does not name the sample: {error}") from error
        torch.zeros(8, device=bench.device).sum().item()  # the device still works
        return {"error of": "sample 2"}
    raise AssertionError("a damaged picture is no error")
