"""mdsx.Image(device="cuda"): what the GPU makes of pictures, in every way of making batches.

The one function that calls nvJPEG is replaced here by mdsx's own decoder, and the device is the processor: there is no
GPU where these tests run. All the rest is the real thing: which pictures go to the GPU, how they are cropped, resized,
turned and joined, what becomes of those that nvJPEG refuses, and how errors arrive. `python3 -m tools device` compares
the pixels of nvJPEG itself on a machine with a GPU.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image as PillowImage

import mdsx
from mdsx.decoding import deferred
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
    monkeypatch.setattr("mdsx.torch.gpu_pictures.check_torchvision", lambda: None)
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


def near(one: list[Any], other: list[Any], edge: int = 0) -> bool:
    """Return whether pictures are within 1 of 255; without the `edge` of them, at [C, H, W]."""
    for found, expected in zip(one, other, strict=True):
        if found is None or expected is None:
            assert found is expected
            continue
        assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
        gap = (found.int() - expected.int()).abs()
        if edge:
            gap = gap[:, edge:-edge, edge:-edge]
        assert gap.max() <= 1
    return True


def same(one: Any, other: Any) -> bool:
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    return one is other is None or torch.equal(one, other)


# --- pixels


def on_gpu(image: mdsx.Image, *data: bytes, seeds: tuple[int, ...] = ()) -> list[NDArray[np.int16]]:
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
            assert gap.max() <= 1
            assert gap.mean() < 0.3


@pytest.mark.parametrize(
    ("kind", "goes"),
    [
        ({}, True),
        ({"progressive": True}, True),
        ({"subsampling": 0}, True),
        ({"exif": b"Exif\0\0damaged"}, True),
        ({"mode": "L"}, True),
        ({"keep_rgb": True}, False),  # stored as RGB
        ({"mode": "CMYK"}, False),
        ({"kind": "PNG"}, False),
        ({"kind": "WEBP"}, False),
        ({"cut": 20}, False),
        ({"max_pixels": 100}, False),
    ],
    ids=str,
)
def test_the_gpu_gets_what_it_decodes_as_the_processor_does(kind: dict[str, Any], goes: bool) -> None:
    options = dict(kind)
    name, mode, cut = options.pop("kind", "JPEG"), options.pop("mode", "RGB"), options.pop("cut", 0)
    limit = options.pop("max_pixels", 10**6)
    data = encoded(PillowImage.fromarray(photo(40, 60)).convert(mode), name, **options)
    image = mdsx.Image(device="cuda", max_pixels=limit)
    assert (deferred(image, data[: len(data) - cut], 0, "here") is not None) == goes


def test_a_grey_picture_is_rgb_if_asked_for() -> None:
    data = jpeg(photo(40, 60)[..., :1])
    for size in (None, 24):
        image = mdsx.Image(size=size, device="cuda")
        (found,) = on_gpu(image, data)
        assert np.abs(found - image.decode(data)).max() <= 1


def test_a_picture_does_not_depend_on_those_beside_it() -> None:
    data = [jpeg(photo(40 + number % 2, 60, seed=number)) for number in range(7)]
    image = mdsx.Image(size=24, resize="random_crop", device="cuda")
    seeds = tuple(range(7))
    together = on_gpu(image, *data, seeds=seeds)
    for one, each, seed in zip(together, data, seeds, strict=True):
        np.testing.assert_array_equal(one, on_gpu(image, each, seeds=(seed,))[0])


def test_large_pictures_are_decoded_in_several_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = list[int]()

    def counted(encoded: list[torch.Tensor], mode: Any, device: torch.device) -> list[torch.Tensor]:
        calls.append(len(encoded))
        return stand_in(encoded, mode, device)

    monkeypatch.setattr("mdsx.torch.gpu_pictures.nvjpeg", counted)
    monkeypatch.setattr("mdsx.torch.gpu_pictures._MOST", 5 * 40 * 60)
    data = [jpeg(photo(40, 60, seed=number)) for number in range(12)]
    found = on_gpu(mdsx.Image(device="cuda"), *data)
    assert calls == [5, 5, 2]
    for one, each in zip(found, data, strict=True):
        np.testing.assert_array_equal(one, mdsx.Image().decode(each))


# --- batches


@pytest.fixture(scope="module")
def expected(url: str) -> list[dict[str, Any]]:
    return list(loader(url, "cpu"))


def check(found: list[dict[str, Any]], expected: list[dict[str, Any]]) -> None:
    for one, other in zip(found, expected, strict=True):
        assert list(one) == list(other)
        assert torch.equal(one["id"], other["id"])
        assert same(one["large"], other["large"])  # not resized
        assert near(list(one["image"]), list(other["image"]), edge=2)
        assert near(one["maybe"], other["maybe"])
        assert all(each is None or each.is_contiguous() for each in (one["image"], *one["large"], *one["maybe"]))


@pytest.mark.slow_if("way == 'spawned workers'")
@pytest.mark.parametrize("way", WAYS)
def test_batches_are_those_of_the_processor(url: str, expected: list[dict[str, Any]], way: str) -> None:
    gpu = loader(url, **WAYS[way])
    check(list(gpu), expected)
    check(list(gpu), list(loader_at(url, "cpu", epoch=1)))


def loader_at(url: str, device: str, epoch: int) -> StreamingDataLoader:
    found = loader(url, device)
    found.set_epoch(epoch)
    return found


def test_a_run_resumes_with_the_same_pictures(url: str) -> None:
    whole = list(loader(url))
    for after in (2, 5):
        first, again = loader(url, num_threads=2), loader(url, num_workers=1)
        for _ in itertools.islice(first, after):
            pass
        again.load_state_dict(first.state_dict())
        rest = list(again)
        assert len(rest) == len(whole) - after
        for one, other in zip(rest, whole[after:], strict=True):
            assert all(same(one[name], other[name]) for name in other)


def test_pictures_that_the_gpu_does_not_decode_are_a_tensor_too(tmp_path: Path) -> None:
    with mdsx.Writer(tmp_path / "data", {"image": "png"}) as out:
        for number in range(BATCH):
            out.write({"image": encoded(photo(40, 60, seed=number))})
    (batch,) = loader(str(tmp_path / "data"), decode={"image": mdsx.Image(size=32, device="cuda")})
    assert batch["image"].shape == (BATCH, 32, 32, 3)


def test_arrays_that_were_never_encoded_are_no_pictures(tmp_path: Path) -> None:
    """A packed row has a list of them, also where it is empty."""
    with mdsx.Writer(tmp_path / "data", {"tokens": "uint16[*]", "pixels": "uint8[3,4,4]"}) as out:
        for number in range(BATCH):
            out.write({"tokens": np.arange(5), "pixels": np.full((3, 4, 4), number, np.uint8)})
    data = StreamingDataset(str(tmp_path / "data"), shuffle=False, rank=0, world_size=1)
    packed = mdsx.Pack(16, length="tokens")
    (batch,) = StreamingDataLoader(data, 3, device="cpu", batching=packed, drop_last=False, uneven="empty")
    rows = batch["pixels"]
    assert all(isinstance(each, torch.Tensor) for row in rows for each in row)
    assert sum(map(len, rows)) == BATCH


@pytest.mark.parametrize("options", [{}, {"num_workers": 1}])
def test_a_rank_without_samples_gets_an_empty_batch(url: str, options: dict[str, Any]) -> None:
    """The last of 41 samples is one for two ranks."""
    sizes = list[tuple[int, ...]]()
    for rank in range(2):
        data = StreamingDataset(url, decode=decoding("cuda"), rank=rank, world_size=2, columns=list(COLUMNS))
        *_, last = StreamingDataLoader(data, 4, device="cpu", drop_last=False, **options)
        sizes.append(tuple(last["image"].shape))
        assert last["image"].dtype == torch.uint8
    assert sorted(sizes) == [(0, 3, 32, 32), (1, 3, 32, 32)]


def test_a_rank_without_samples_may_repeat_one(url: str) -> None:
    valid = list[bool]()
    for rank in range(2):
        data = StreamingDataset(url, decode=decoding("cuda"), rank=rank, world_size=2)
        *_, last = StreamingDataLoader(data, 4, device="cpu", drop_last=False, uneven="repeat")
        assert last["image"].shape == (1, 3, 32, 32)
        valid += last["valid"].tolist()
    assert sorted(valid) == [False, True]


def test_batches_of_one_shape(url: str) -> None:
    sizes = [(32, 32), (24, 48)]
    mdsx.write_sizes(url, column="large")
    decode = {"image": mdsx.Image(size=24, device="cuda")}
    data = StreamingDataset(url, decode=decode, columns=["image", "large", "id"])
    batching = mdsx.Buckets(by="large", sizes=sizes, global_batch_size=4)
    batches = list(StreamingDataLoader(data, batching=batching, device="cpu"))
    assert sum(len(batch["image"]) for batch in batches) == N
    assert {tuple(batch["image"].shape[1:]) for batch in batches} == {(24, 24, 3)}


# --- what cannot be decoded


def test_a_damaged_picture_is_the_error_of_its_batch(tmp_path: Path) -> None:
    """One that the loader's threads find, and one that only nvJPEG finds: both name the sample and the column."""
    for name, data in {"cut": jpeg(photo(40, 60))[:900], "damaged": damaged()}.items():
        with mdsx.Writer(tmp_path / name, {"image": "jpeg", "id": "int64"}) as out:
            for number in range(12):
                out.write({"image": data if number == 7 else jpeg(photo(40, 60)), "id": number})
        found = list[int]()
        data_ = StreamingDataset(tmp_path / name, shuffle=False, decode={"image": mdsx.Image(device="cuda", size=24)})
        made = StreamingDataLoader(data_, 3, device="cpu")
        batches = iter(made)
        for _ in range(2):
            found += next(batches)["id"].tolist()
        for _ in range(2):  # again at the same batch
            with pytest.raises(
                mdsx.CorruptError, match=r"shard\.0+\.mdsx, sample 7, column 'image': the picture cannot"
            ):
                next(batches)
        assert found == list(range(6))
        assert made.state_dict()["position"] == 6


def damaged() -> bytes:
    """Return a JPEG without its quantization tables."""
    return jpeg(photo(40, 60)).replace(b"\xff\xdb", b"\xff\xfe")  # they become comments


def test_a_picture_with_two_sizes_is_damaged() -> None:
    data = jpeg(photo(40, 60))
    value = deferred(mdsx.Image(device="cuda"), data, 0, "here")
    assert value is not None
    value = replace(value, header=value.header._replace(height=41))
    found = Pictures([value], None).to(torch.device("cpu"))
    np.testing.assert_array_equal(found[0], mdsx.Image().decode(data))  # the processor decides


def test_a_torchvision_without_nvjpeg_is_named(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def without(encoded: list[torch.Tensor], mode: Any, device: torch.device) -> list[torch.Tensor]:
        raise RuntimeError("decode_jpegs_cuda: torchvision not compiled with nvJPEG support")

    monkeypatch.setattr("mdsx.torch.gpu_pictures.nvjpeg", without)
    with pytest.raises(mdsx.UsageError, match="this torchvision has no nvJPEG"):
        next(iter(loader(url)))


# --- where it is refused


def packed(url: str) -> Any:
    return loader(url, batching=mdsx.Pack(64, length="id"))


def planned(url: str) -> Any:
    data = StreamingDataset(url, decode=decoding("cuda"))
    plan = mdsx.Plan({0: mdsx.Phase(global_batch_size=4), 8: mdsx.Phase(batching=mdsx.Pad())})
    return StreamingDataLoader(data, plan=plan, device="cpu")


def transforming(url: str) -> Any:
    data = StreamingDataset(url, decode=decoding("cuda"), transform=dict)
    return StreamingDataLoader(data, 4, device="cpu")


REFUSED_WAYS: dict[str, Any] = {
    "an mdsx.Dataset": lambda url: mdsx.Dataset(url, decode=decoding("cuda")),
    "an mdsx.Loader": lambda url: mdsx.Loader(url, 4, decode=decoding("cuda")),
    "a StreamingDataset without a StreamingDataLoader": lambda url: iter(
        StreamingDataset(url, decode=decoding("cuda"))
    ),
    "a StreamingDataLoader with device=None": lambda url: streamed(url),
    "a transform": transforming,
    "a collate_fn": lambda url: loader(url, collate_fn=list),
    "a batch that is packed or padded": packed,
    "on_error='skip'": lambda url: loader(url, on_error="skip"),
}


def streamed(url: str) -> Any:
    return StreamingDataLoader(StreamingDataset(url, decode=decoding("cuda")), 4)


@pytest.mark.parametrize("what", REFUSED_WAYS)
def test_what_needs_the_pictures_before_is_refused_at_once(url: str, what: str) -> None:
    with pytest.raises(mdsx.UsageError, match="decodes them later") as raised:
        REFUSED_WAYS[what](url)
    assert what in str(raised.value)
    assert "device='cpu'" in str(raised.value)


def test_a_later_phase_of_a_plan_is_refused_too(url: str) -> None:
    with pytest.raises(mdsx.UsageError, match="a batch that is packed or padded"):
        planned(url)


def test_other_devices_are_refused(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mdsx.torch.gpu_pictures.DEVICE", "cuda")
    with pytest.raises(mdsx.UsageError, match="a StreamingDataLoader with device='cpu' needs decoded pictures"):
        loader(url)


def test_rgba_is_refused() -> None:
    with pytest.raises(mdsx.UsageError, match="without alpha"):
        mdsx.Image(mode="RGBA", device="cuda")


# --- streams


def test_the_stream_of_the_loop_is_recorded_in_each_picture(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    """Memory of pictures is used again only after the loop's work with them, as that of other columns."""
    monkeypatch.setattr("mdsx.torch.carriers.cuda", model := Cuda(devices=1))
    monkeypatch.setattr("mdsx.torch.gpu_pictures.DEVICE", "cuda")
    monkeypatch.setattr(OnHost, "cuda", model, raising=False)
    recorded = list[OnDevice]()

    def arrive(self: Pictures, device: torch.device, non_blocking: bool = False) -> list[Any]:
        return [OnDevice(model, device) for _ in self.values]

    monkeypatch.setattr(Pictures, "to", arrive)
    monkeypatch.setattr(OnDevice, "record_stream", lambda self, stream: recorded.append(self))
    data = StreamingDataset(url, columns=["large"], decode={"large": mdsx.Image(device="cuda")})
    for batch in StreamingDataLoader(data, BATCH, device="cuda"):
        assert batch["large"] == recorded
        recorded.clear()
