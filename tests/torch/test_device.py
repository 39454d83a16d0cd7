"""Batches on a device: the same ones, in their places, copied one ahead on a stream of their own.

CUDA is a model here (device_model.py), which is as late as a real device may be. `python3 -m tools device` shows the
same on a machine with a GPU.
"""

from __future__ import annotations

import copy
import gc
import itertools
import pickle
import threading
import weakref
from collections import UserDict, namedtuple
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import mdsx
from mdsx.torch import StreamingDataLoader, StreamingDataset
from tests.base.work.makers import living_workers
from tests.waiting import wait_until

from .device_model import Cuda, OnDevice, OnHost, Unrecordable

N, BATCH = 200, 16
WAYS: dict[str, dict[str, Any]] = {
    "a thread": {},
    "3 threads": {"num_threads": 3},
    "2 workers": {"num_workers": 2},
    "persistent workers": {"num_workers": 2, "persistent_workers": True},
}
Pair = namedtuple("Pair", "first second")


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    url = str(tmp_path_factory.mktemp("device") / "data")
    columns = {"id": "int64", "text": "str", "tokens": "uint16[*]", "image": "uint8[4,4]"}
    with mdsx.Writer(url, columns, shard_size=3000) as writer:
        for number in range(N):
            row = {"id": number, "text": str(number), "tokens": list(range(number % 7)), "image": [[number] * 4] * 4}
            writer.write(row)
    return url


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest) -> dict[str, Any]:
    return WAYS[request.param]


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Cuda:
    model = Cuda(devices=2)
    monkeypatch.setattr("mdsx.torch.carriers.cuda", model)
    monkeypatch.setattr(OnHost, "cuda", model, raising=False)
    return model


def loader(url: str, transform: Any = None, **options: Any) -> StreamingDataLoader:
    data = StreamingDataset(url, seed=5, transform=transform)
    if "plan" not in options:
        options = {"batch_size": BATCH, **options}
    return StreamingDataLoader(data, **{"drop_last": False, **options})


def arrays(samples: list[Any]) -> dict[str, Any]:
    return {"x": OnHost([float(sample["id"]) for sample in samples]), "text": [sample["text"] for sample in samples]}


def read(batches: Any, out: list[Any]) -> Iterator[list[str]]:
    """Queue a kernel for each batch, and never wait for it. Yield texts, which stay as they are."""
    for batch in batches:
        batch["x"].read(out)
        yield batch["text"]


def visible(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.dtype, tuple(value.shape), [] if value.is_meta else value.tolist()
    if isinstance(value, dict):
        return {name: visible(each) for name, each in value.items()}
    return list(map(visible, value)) if isinstance(value, list) else value


# --- any device


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"batching": mdsx.Pack(16, length="tokens", layout="flat")},
        {"batching": mdsx.Pad()},
        {"batch_size": None, "batching": mdsx.MaxTokens(40, length="tokens")},
        {"plan": mdsx.Plan({0: mdsx.Phase(global_batch_size=8), 96: mdsx.Phase(global_batch_size=20)})},
    ],
    ids=["plain", "packed", "padded", "bounded", "planned"],
)
def test_a_device_changes_where_batches_are_and_nothing_else(
    url: str, way: dict[str, Any], options: dict[str, Any]
) -> None:
    plain, moved = loader(url, **options), loader(url, device="cpu", **options, **way)
    for _ in range(2):
        assert [visible(batch) for batch in moved] == [visible(batch) for batch in plain]
        assert moved.state_dict() == plain.state_dict()
    first = next(iter(loader(url, device="meta", **options, **way)))
    assert {value.device.type for value in first.values() if isinstance(value, torch.Tensor)} == {"meta"}


def test_a_loader_resumes_in_the_midst_wherever_its_batches_go(url: str, way: dict[str, Any]) -> None:
    """A batch that is on its way was not handed out, and a state does not count it."""
    whole = [batch["id"].tolist() for batch in loader(url)]
    first = loader(url, device="cpu", **way)
    assert [batch["id"].tolist() for batch in itertools.islice(first, 3)] == whole[:3]
    again = loader(url, device="cpu", **way)
    again.load_state_dict(pickle.loads(pickle.dumps(first.state_dict())))
    assert [batch["id"].tolist() for batch in again] == whole[3:]


def fails_at_50(sample: Any) -> Any:
    if sample["id"] == 50:
        raise ValueError("fifty")
    return sample


def test_an_exception_comes_at_the_batch_which_it_prevents(url: str, way: dict[str, Any]) -> None:
    whole = [batch["id"].tolist() for batch in loader(url)]
    failing = loader(url, fails_at_50, device="cpu", **way)
    batches, place = iter(failing), next(place for place, ids in enumerate(whole) if 50 in ids)
    assert [next(batches)["id"].tolist() for _ in range(place)] == whole[:place]
    for _ in range(2):  # again at the same one
        with pytest.raises(ValueError, match="fifty"):
            next(batches)
    assert failing.state_dict()["position"] == place * BATCH


def test_samples_that_are_skipped_are_counted_once(url: str, way: dict[str, Any]) -> None:
    skipping = loader(url, fails_at_50, device="meta", on_error="skip", **way)
    assert sum(len(batch["id"]) for batch in skipping) == N - 1
    assert skipping.stats().skipped == 1


@pytest.mark.parametrize("leave", ["break", "epoch", "close"])
def test_nothing_is_left_over(url: str, way: dict[str, Any], leave: str) -> None:
    before = set(threading.enumerate())
    left = loader(url, device="cpu", **way)
    for number, _ in enumerate(left):
        if leave == "break" and number == 2:
            break
    if leave == "close":
        iter(left).__next__()
        left.set_epoch(7)
    del left, _
    gc.collect()
    assert not living_workers()
    wait_until(lambda: not set(threading.enumerate()) - before)


def test_copies_and_pickles_of_a_loader_continue_on_their_own(url: str) -> None:
    whole = [batch["id"].tolist() for batch in loader(url)]
    first = loader(url, device="cpu")
    batches = iter(first)
    for _ in range(4):
        next(batches)
    for other in (copy.copy(first), pickle.loads(pickle.dumps(first))):
        assert [batch["id"].tolist() for batch in other] == whole[4:]
    assert next(batches)["id"].tolist() == whole[4]


@pytest.mark.parametrize(
    ("device", "message"),
    [
        ("cuda:99", "there is no device cuda:99"),
        ("nowhere", "not a PyTorch device"),
        (2.5, "not a PyTorch device"),
        ("hpu", "there is no device hpu"),
    ],
)
def test_a_device_that_is_not_there_is_refused_at_once(url: str, device: Any, message: str) -> None:
    with pytest.raises(mdsx.UsageError, match=message):
        loader(url, device=device)


# --- CUDA


def test_every_kernel_reads_its_own_batch(url: str, cuda: Cuda, way: dict[str, Any]) -> None:
    """The loop never waits for the device, frees each batch at once, and runs for several epochs."""
    plain, moved = loader(url, collate_fn=arrays), loader(url, collate_fn=arrays, device="cuda", **way)
    expected, found = list[Any](), list[Any]()
    for _ in range(3):
        expected += [batch["x"].values[0] for batch in plain]
        assert list(itertools.chain(*read(moved, found))) == [
            str(int(number)) for values in expected[-13:] for number in values
        ]
    cuda.current_stream(torch.device("cuda", 0)).synchronize()
    assert found == expected


def test_a_batch_is_never_overwritten_while_the_loop_keeps_it(url: str, cuda: Cuda) -> None:
    expected = [batch["x"].values[0] for batch in loader(url, collate_fn=arrays)]
    kept = [batch["x"] for batch in loader(url, collate_fn=arrays, device="cuda")]
    found = list[Any]()
    for array in kept:
        array.read(found)
    cuda.current_stream(torch.device("cuda", 0)).synchronize()
    assert found == expected


def test_memory_is_not_used_again_before_the_device_has_read_it(
    url: str, cuda: Cuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each copy is made after the loop has freed the batch that the device is still to read."""
    freed, copies, found = threading.Semaphore(2), itertools.count(), list[Any]()
    monkeypatch.setattr(OnHost, "before_pinning", lambda: freed.acquire(timeout=60) and next(copies))
    expected = [batch["x"].values[0] for batch in loader(url, collate_fn=arrays)]
    batches = iter(loader(url, collate_fn=arrays, device="cuda"))
    next(batches)["x"].read(found)
    for batch in batches:
        batch["x"].read(found)
        del batch
        freed.release()
    cuda.current_stream(torch.device("cuda", 0)).synchronize()
    assert next(copies) == len(expected)
    assert found == expected


def test_one_batch_is_ahead_on_the_device(url: str, cuda: Cuda) -> None:
    """Memory holds the batch that the device works on, the one that was handed out after it, and the next one."""
    for _ in range(3):
        list(read(loader(url, collate_fn=arrays, device="cuda", num_threads=2), []))
        assert cuda.blocks <= 3
        cuda.blocks = 0


def test_the_loop_may_use_streams_of_its_own(url: str, cuda: Cuda) -> None:
    expected, found = [batch["x"].values[0] for batch in loader(url, collate_fn=arrays)], list[Any]()
    streams = itertools.cycle([cuda.Stream(torch.device("cuda", 0)) for _ in range(3)])
    batches = iter(loader(url, collate_fn=arrays, device="cuda"))
    for stream in streams:
        with cuda.stream(stream):
            batch = next(batches, None)
            if batch is None:
                break
            batch["x"].read(found)
            stream.synchronize()
    assert found == expected


def test_pinning_is_not_the_work_of_the_loop(url: str, cuda: Cuda, way: dict[str, Any]) -> None:
    """Neither with a device nor with `pin_memory` alone, in which batches stay on the host."""
    pinned = list(loader(url, collate_fn=arrays, pin_memory=True, **way))
    assert all(batch["x"].pinned for batch in pinned)
    list(read(loader(url, collate_fn=arrays, device="cuda", **way), []))
    assert cuda.pinned_in == {"mdsx-batches"}


@pytest.mark.parametrize(("device", "index"), [("cuda", 1), ("cuda:0", 0), (torch.device("cuda", 1), 1)])
def test_cuda_is_the_current_device_when_an_iteration_begins(url: str, device: Any, index: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("mdsx.torch.carriers.cuda", model := Cuda(devices=2, current=1))
        patch.setattr(OnHost, "cuda", model, raising=False)
        batch = next(iter(loader(url, collate_fn=arrays, device=device)))
        assert batch["x"].device == torch.device("cuda", index)


class Mine(dict[str, Any]):
    """A mapping with a name."""

    name = ""


def nested(samples: list[Any]) -> Any:
    values = [float(sample["id"]) for sample in samples]
    mine = Mine(x=OnHost(values))
    mine.name = "mine"
    return Pair(
        [OnHost(values), ("text", None)],
        {"own": Unrecordable(values), "user": UserDict(x=OnHost(values)), "mine": mine},
    )


def test_values_move_wherever_they_are_in_a_batch(url: str, cuda: Cuda) -> None:
    """An object that no stream can be recorded in is copied by `next()`, on the stream of the loop."""
    for plain, batch in zip(loader(url, collate_fn=nested), loader(url, collate_fn=nested, device="cuda"), strict=True):
        assert type(batch) is Pair
        assert batch.first[1] == ("text", None)
        assert type(batch.second["user"]) is UserDict
        assert (type(batch.second["mine"]), batch.second["mine"].name) == (Mine, "mine")
        found = list[Any]()
        for array in (batch.first[0], *(batch.second[name]["x"] for name in ("user", "mine")), batch.second["own"][0]):
            assert type(array) is OnDevice
            array.read(found)
        cuda.current_stream(torch.device("cuda", 0)).synchronize()
        assert found == [plain.first[0].values[0]] * 4


class OutOfMemory:
    """A value that cannot be copied while `flag` is there."""

    def __init__(self, flag: Path, number: int) -> None:
        self.flag, self.number = flag, number

    def to(self, device: Any) -> int:
        if self.number == 50 and self.flag.exists():
            raise RuntimeError("out of memory")
        return self.number


def test_an_error_of_a_copy_comes_at_its_batch(
    url: str, tmp_path: Path, way: dict[str, Any], request: pytest.FixtureRequest
) -> None:
    flag = tmp_path / "flag"
    flag.touch()
    gc.collect()
    gc.disable()
    request.addfinalizer(gc.enable)
    whole = [batch["id"].tolist() for batch in loader(url)]
    place = next(place for place, ids in enumerate(whole) if 50 in ids)

    batches = iter(loader(url, collate_fn=Numbers(flag), device="meta", **way))
    assert [next(batches) for _ in range(place)] == whole[:place]
    with pytest.raises(RuntimeError, match="out of memory"):
        next(batches)
    flag.unlink()
    assert list(batches) == whole[place:]
    del batches
    assert not living_workers()  # without the garbage collector: the error keeps nothing alive


class Numbers:
    def __init__(self, flag: Path) -> None:
        self.flag = flag

    def __call__(self, samples: list[Any]) -> list[OutOfMemory]:
        return [OutOfMemory(self.flag, sample["id"]) for sample in samples]


def test_a_loop_that_is_left_releases_its_memory(url: str, cuda: Cuda) -> None:
    left = loader(url, collate_fn=arrays, device="cuda")
    batches = iter(left)
    array = weakref.ref(next(batches)["x"])
    assert array() is None  # the loader keeps nothing that it handed out
    del batches, left
    gc.collect()
    assert not [each for each in gc.get_objects() if type(each) is OnDevice or (type(each) is OnHost and each.pinned)]
