"""Decode JPEGs on a GPU, with nvJPEG through torchvision, in the thread and on the stream that copy a batch there
(`carriers.py`).

The result for a picture depends only on its bytes and seed, never on other pictures in the batch. Pixels are resized as
float32 by `interpolate(antialias=True)`. With "shortest", the whole picture is resized and its middle is taken.
Otherwise only the cropped part is resized, so pixels at its edge are not mixed with those beyond it, as in torchvision.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch.nn.functional import interpolate

from mdsx.decoding import LEFT_TO_RIGHT, ON_ITS_SIDE, UPSIDE_DOWN, Decoder, Deferred, check_on_cpu, corrupt, on_gpu
from mdsx.errors import UsageError
from mdsx.format import UINT8, ColumnType
from mdsx.loader import Reading
from mdsx.stream import SAMPLES, Buckets

DEVICE = "cuda"
_MOST = 2**26  # pixels of pictures that are decoded together: 200 MB of memory

Value = Deferred | np.ndarray[Any, Any] | None


class Pictures:
    """A column in flight: pictures for a GPU to decode, arrays of decoded ones, and None. `shape`: that of each value,
    if all have one size and none is None."""

    def __init__(self, values: Sequence[Value], shape: tuple[int, ...] | None) -> None:
        self.values, self.shape = values, shape

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, part: slice) -> Pictures:
        return Pictures(self.values[part], self.shape)

    def to(self, device: torch.device, non_blocking: bool = False) -> torch.Tensor | list[torch.Tensor | None]:
        """Return the pictures on a device: a tensor uint8 [n, ...], or a list.

        Raise CorruptError, which names the first picture that cannot be decoded.
        """
        found: list[torch.Tensor | None] = [
            _copied(value, device) if isinstance(value, np.ndarray) else None for value in self.values
        ]
        for places, values in _together(self.values):
            decoded = _decoded(values, device)
            there = [(pixels, value) for pixels, value in zip(decoded, values, strict=True) if pixels is not None]
            shown = iter(_shown(there))
            for place, value, pixels in zip(places, values, decoded, strict=True):
                found[place] = _on_cpu(value, device) if pixels is None else next(shown)
        if self.shape is None:
            return [None if pixels is None else _rounded(pixels.contiguous()) for pixels in found]
        if not found:
            return torch.empty((0, *self.shape), dtype=torch.uint8, device=device)
        same = [pixels for pixels in found if pixels is not None]
        if any(pixels.is_floating_point() for pixels in same):
            same = [pixels.float() for pixels in same]
        return _rounded(torch.stack(same))


def pictures(kind: ColumnType, values: list[Any]) -> Pictures | None:
    """Return a column of type `kind` as pictures, if it has some for a GPU to decode; else None."""
    if kind.base != UINT8.name or not any(isinstance(value, Deferred) for value in values):
        return None
    return Pictures(values, tuple(size or 0 for size in kind.shape or ()) if kind.one_size else None)


def check_gpu(reading: Reading, device: torch.device | None) -> None:
    """Raise UsageError if a loader leaves pictures to a GPU, but they cannot be decoded there."""
    decoders: dict[str, list[Decoder]] = reading.view.decodes
    if not any(on_gpu(each) for column in decoders.values() for each in column):
        return
    spec = reading.spec
    if device is None or device.type != DEVICE:
        check_on_cpu(decoders, f"a StreamingDataLoader with device={device and str(device)!r}")
    if spec.transform is not None or spec.random_transform is not None:
        check_on_cpu(decoders, "a transform")
    if spec.collate_fn is not None:
        check_on_cpu(decoders, "a collate_fn")
    batchings = [spec.batching, *(phase.batching for phase in reading.plan.phases)]
    if not all(each is SAMPLES or isinstance(each, Buckets) for each in batchings):
        check_on_cpu(decoders, "a batch that is packed or padded")
    if spec.on_error == "skip":
        check_on_cpu(decoders, "on_error='skip'")
    check_torchvision()


def check_torchvision() -> None:
    """Raise UsageError without torchvision."""
    try:
        import torchvision.io  # noqa: F401
    except Exception as error:  # a torchvision for another PyTorch raises RuntimeError
        hint = "install the torchvision for this PyTorch, see pytorch.org; or give the mdsx.Image device='cpu'"
        raise UsageError("mdsx.Image(device='cuda') needs torchvision", found=str(error), hint=hint) from error


def nvjpeg(encoded: list[torch.Tensor], mode: str, device: torch.device) -> list[torch.Tensor]:
    """Decode JPEGs to uint8 [C, H, W], on the current stream. Raise RuntimeError if one cannot be decoded."""
    from torchvision.io import ImageReadMode, decode_jpeg

    torch.cuda.current_stream(device).synchronize()  # nvJPEG decodes on its own stream, which does not wait for ours
    found: list[torch.Tensor] = decode_jpeg(encoded, ImageReadMode.GRAY if mode == "L" else ImageReadMode.RGB, device)
    return found


def _together(values: Sequence[Value]) -> Iterator[tuple[list[int], list[Deferred]]]:
    """Yield the pictures to decode in one call, and their places: pictures of one mode, up to a number of pixels."""
    open_: dict[str, tuple[list[int], list[Deferred], list[int]]] = {}
    for place, value in enumerate(values):
        if not isinstance(value, Deferred):
            continue
        mode, size = _mode(value), value.header.width * value.header.height
        places, some, sizes = open_.setdefault(mode, ([], [], []))
        if some and sum(sizes) + size > _MOST:
            yield places, some
            places, some, sizes = open_[mode] = ([], [], [])
        places.append(place)
        some.append(value)
        sizes.append(size)
    yield from ((places, some) for places, some, _ in open_.values())


def _mode(value: Deferred) -> str:
    """Return the mode to decode a picture in. Grey pictures become RGB later."""
    return "L" if value.header.components == 1 else value.image.mode


def _decoded(values: list[Deferred], device: torch.device) -> list[torch.Tensor | None]:
    """Return pictures as they are stored, uint8 [C, H, W]; None for those that nvJPEG cannot decode."""
    encoded = [torch.frombuffer(bytearray(value.data), dtype=torch.uint8) for value in values]
    try:
        found = nvjpeg(encoded, _mode(values[0]), device)
    except RuntimeError as error:
        if "not compiled with nvJPEG" in str(error):
            hint = "install a torchvision with CUDA, see pytorch.org; or give the mdsx.Image device='cpu'"
            raise UsageError("this torchvision has no nvJPEG", found=str(error), hint=hint) from error
        if len(values) == 1:
            return [None]
        half = len(values) // 2
        return _decoded(values[:half], device) + _decoded(values[half:], device)
    sizes = [(value.header.height, value.header.width) for value in values]
    return [each if each.shape[1:] == size else None for each, size in zip(found, sizes, strict=True)]


def _on_cpu(value: Deferred, device: torch.device) -> torch.Tensor:
    """Decode a picture that nvJPEG cannot decode on the CPU. Raise an error if it is damaged."""
    try:
        found = value.image.decode(value.data, value.seed)
    except MemoryError:
        raise
    except Exception as error:
        raise corrupt(error, value.place) from error
    return _copied(found, device)


def _copied(array: np.ndarray[Any, Any], device: torch.device) -> torch.Tensor:
    return torch.from_numpy(np.require(array, requirements=("C", "W"))).to(device)


def _shown(decoded: list[tuple[torch.Tensor, Deferred]]) -> list[torch.Tensor]:
    """Return stored pictures, uint8 [C, H, W], cropped, resized, turned and laid out: uint8, or float32 not rounded."""
    alike: dict[tuple[Any, ...], list[int]] = {}
    found = [pixels for pixels, _ in decoded]
    for number, (pixels, value) in enumerate(decoded):
        (left, top, right, bottom), size, middle = value.way
        pixels = found[number] = pixels[:, top:bottom, left:right]
        alike.setdefault((pixels.shape, size, middle), []).append(number)
    for (shape, size, (left, top, right, bottom)), numbers in alike.items():
        if shape[1:] != size:  # resize pictures of one size together; the result is the same as one by one
            together = torch.stack([found[number] for number in numbers]).float()
            resized = interpolate(together, size=size, mode="bilinear", antialias=True)
            for number, pixels in zip(numbers, resized, strict=True):
                found[number] = pixels
        for number in numbers:
            found[number] = _turned(found[number][:, top:bottom, left:right], decoded[number][1])
    return found


def _turned(pixels: torch.Tensor, value: Deferred) -> torch.Tensor:
    """Return a picture turned as EXIF says, with all channels, and laid out."""
    orientation = value.header.orientation
    if orientation in ON_ITS_SIDE:
        pixels = pixels.transpose(1, 2)
    turned = [axis for axis, those in ((2, LEFT_TO_RIGHT), (1, UPSIDE_DOWN)) if orientation in those]
    pixels = pixels.flip(turned) if turned else pixels
    if value.image.mode == "RGB":
        pixels = pixels.expand(3, -1, -1)  # grey ones
    return pixels if value.image.layout == "CHW" else pixels.permute(1, 2, 0)


def _rounded(pixels: torch.Tensor) -> torch.Tensor:
    return pixels.round_().to(torch.uint8) if pixels.is_floating_point() else pixels
