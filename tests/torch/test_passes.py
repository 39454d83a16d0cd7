"""What `for batch in loader` does after something was done with the loader: in a thread, and in workers."""

from __future__ import annotations

import contextlib
import copy
import itertools
import os
import pickle
import signal
import time
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from torch.utils.data import DataLoader

import mdsx
from mdsx.storage import retry
from mdsx.torch import StreamingDataLoader, StreamingDataset
from tests.torch.conftest import write
from tools.servers.s3 import S3Server

N, BATCH, BATCHES = 1003, 100, 10
TIMEOUT = 120.0
WAYS: dict[str, dict[str, Any]] = {
    "a thread": {},
    "workers": {"num_workers": 2},
    "persistent workers": {"num_workers": 2, "persistent_workers": True},
    "pickled workers": {"num_workers": 1, "persistent_workers": True, "multiprocessing_context": "forkserver"},
}
FAST = [name for name in WAYS if name != "pickled workers"]


class Spoilt:
    """A `transform` that raises at one sample while the file `flag` exists; with `once` it removes the file."""

    def __init__(self, flag: Path, number: int, once: bool = True) -> None:
        self.flag, self.number, self.once = flag, number, once

    def __call__(self, sample: dict[str, Any]) -> Any:
        if sample["id"] == self.number and self.flag.exists():
            if self.once:
                self.flag.unlink()
            raise ValueError("bad picture")
        return {"id": sample["id"]}


def ids(batches: Any) -> list[list[int]]:
    return [batch["id"].tolist() for batch in batches]


@pytest.fixture(scope="module")
def epochs(local_url: str) -> list[list[list[int]]]:
    """The batches of the first epochs."""
    loader = StreamingDataLoader(StreamingDataset(local_url, seed=8), BATCH)
    return [ids(loader) for _ in range(6)]


Make = Callable[..., StreamingDataLoader]


@pytest.fixture
def flag(tmp_path: Path) -> Path:
    return tmp_path / "spoilt"


@pytest.fixture
def make(local_url: str, epochs: list[list[list[int]]], flag: Path) -> Make:
    def made(way: str, *, once: bool = True, **options: Any) -> StreamingDataLoader:
        spoilt = Spoilt(flag, epochs[0][4][10], once)  # it prevents the fifth batch of epoch 0
        return StreamingDataLoader(StreamingDataset(local_url, seed=8, transform=spoilt, **options), BATCH, **WAYS[way])

    return made


def take(loader: StreamingDataLoader, batches: int) -> None:
    """Take batches, and drop the iterator."""
    list(itertools.islice(loader, batches))


# --- the table


def loaded(loader: StreamingDataLoader, flag: Path) -> None:
    loader.load_state_dict({**loader.state_dict(), "epoch": 2, "position": 700})


def loaded_in_a_pass(loader: StreamingDataLoader, flag: Path) -> None:
    for _ in loader:
        loaded(loader, flag)
        break


def failed(loader: StreamingDataLoader, flag: Path) -> None:
    flag.touch()
    with pytest.raises(ValueError, match="bad picture"):
        take(loader, BATCHES)


def failed_and_the_iterator_goes_on(loader: StreamingDataLoader, flag: Path) -> Any:
    flag.touch()
    batches = iter(loader)
    with pytest.raises(ValueError, match="bad picture"):
        list(batches)
    next(batches)  # the batch that failed
    loader.resume()
    return batches


def broken_off(loader: StreamingDataLoader, flag: Path) -> None:
    for number, _ in enumerate(loader, 1):
        if number == 3:
            break


def resumed_twice(loader: StreamingDataLoader, flag: Path) -> None:
    broken_off(loader, flag)
    loader.resume()
    next(iter(loader))
    loader.resume()


def begun_and_nothing_taken(loader: StreamingDataLoader, flag: Path) -> Any:
    loaded(loader, flag)
    return iter(loader), iter(loader)


CASES: dict[Callable[[StreamingDataLoader, Path], Any], tuple[int, int, int]] = {
    # the position after it, counted over all epochs; the epoch and the batch of the next pass
    loaded_in_a_pass: (2700, 2, 7),
    failed: (400, 0, 4),
    failed_and_the_iterator_goes_on: (500, 0, 5),
    broken_off: (300, 1, 0),
    resumed_twice: (400, 0, 4),
    begun_and_nothing_taken: (2700, 2, 7),
}


@pytest.mark.slow_if("way == 'workers'")
@pytest.mark.parametrize(
    ("way", "case"), [*((way, case) for way in FAST for case in CASES), ("pickled workers", failed)]
)
def test_the_next_pass_is_as_in_the_table(
    make: Make, epochs: list[list[list[int]]], flag: Path, way: str, case: Callable[..., Any]
) -> None:
    """tests/stream/test_run.py has all cases, without data."""
    loader = make(way)
    kept = case(loader, flag)
    position, epoch, batch = CASES[case]
    state = loader.state_dict()
    assert state["epoch"] * BATCHES * BATCH + state["position"] == position
    assert (loader.epoch, loader.remaining) == (epoch, BATCHES - batch)
    loader.set_epoch(loader.epoch)
    assert (loader.state_dict(), loader.epoch, loader.remaining) == (state, epoch, BATCHES - batch)  # nothing changed
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        assert ids(loader) == epochs[epoch][batch:]
    left = [warning for warning in said if "was left" in str(warning.message)]
    assert len(left) == (case is broken_off)
    for warning in left:
        assert "7 of its 10 batches not taken, and this is epoch 1; to read the other" in str(warning.message)
        assert warning.filename == __file__
    assert loader.epoch == epoch + 1
    rest = make("a thread")
    rest.load_state_dict(state)  # the rest of the epoch, even if it was left
    assert ids(rest) == epochs[state["epoch"]][state["position"] // BATCH :]
    del kept


@pytest.mark.parametrize("way", FAST)
def test_unshuffled_abandoned_pass_restarts_without_a_warning(make: Make, flag: Path, way: str) -> None:
    loader = make(way, shuffle=False)
    broken_off(loader, flag)
    assert (loader.epoch, loader.remaining, loader.state_dict()["position"]) == (0, BATCHES, 300)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        assert list(itertools.chain(*ids(loader))) == list(range(BATCHES * BATCH))
    assert not any("was left" in str(warning.message) for warning in said)
    assert loader.epoch == 1


@pytest.mark.slow_if("way == 'persistent workers'")
@pytest.mark.parametrize("way", FAST)
def test_the_documented_loop_survives_failures(make: Make, epochs: list[list[list[int]]], flag: Path, way: str) -> None:
    loader, read = make(way), list[list[int]]()
    flag.touch()
    for _ in range(2):
        with contextlib.suppress(ValueError):
            while loader.epoch < 2:
                read.extend(batch["id"].tolist() for batch in loader)
    assert read == epochs[0] + epochs[1]


@pytest.mark.parametrize("way", FAST)
def test_a_second_iterators_first_batch_ends_the_first(make: Make, epochs: list[list[list[int]]], way: str) -> None:
    loader = make(way)
    first, second = iter(loader), iter(loader)
    assert ids([next(first)]) == epochs[0][:1]
    assert ids([next(first)]) == epochs[0][1:2]
    with pytest.warns(UserWarning, match="8 of its 10 batches"):
        assert ids([next(second)]) == epochs[1][:1]
    with pytest.raises(mdsx.UsageError, match="this iteration has ended"):
        next(first)
    assert ids(second) == epochs[1][1:]


@pytest.mark.slow_if("way == 'workers'")
@pytest.mark.parametrize("way", FAST)
def test_third_failure_names_how_to_skip_the_batch(
    make: Make, epochs: list[list[list[int]]], flag: Path, way: str
) -> None:
    loader, notes = make(way, once=False), []
    flag.touch()
    for _ in range(3):
        with pytest.raises(ValueError, match="bad picture") as caught:
            list(loader)
        notes.append("".join(traceback.format_exception(caught.value)))
    assert ["in a row" in note for note in notes] == [False, False, True]
    assert "{**loader.state_dict(), 'position': 500}" in notes[2]
    loader.load_state_dict({**loader.state_dict(), "position": 500})
    assert ids(loader) == epochs[0][5:]


# --- an outage of a real server


@pytest.mark.slow_if("way == 'workers'")
@pytest.mark.parametrize("way", ["a thread", "workers"])
def test_the_loop_retries_the_failed_batch_after_an_outage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    monkeypatch.setattr(retry, "pause", lambda failures: time.sleep(0.01))
    with S3Server(tmp_path / "s3") as server:
        for name, value in server.env().items():
            monkeypatch.setenv(name, value)
        url = server.make_bucket("outage") + "/data"
        write(url, 403)
        data = StreamingDataset(
            url, seed=8, shuffle=mdsx.Shuffle(1, 64), cache=mdsx.Cache(tmp_path / "cache", limit="16kB")
        )
        loader, read = StreamingDataLoader(data, 16, drop_last=False, **WAYS[way]), list[int]()

        def train() -> None:
            for number, batch in enumerate(loader, 1):
                read.extend(batch["id"].tolist())
                if number == 5 and len(read) == 5 * 16:
                    server.stop()

        with pytest.raises(mdsx.TransportError):
            train()
        assert loader.epoch == 0
        server.start()
        train()
    assert sorted(read) == list(range(403))
    assert loader.epoch == 1


# --- Ctrl-C


@pytest.mark.slow_if("way == 'workers'")
@pytest.mark.parametrize("way", FAST)
def test_ctrl_c_ends_the_pass_and_resume_continues_it(
    local_url: str, tmp_path: Path, epochs: list[list[list[int]]], way: str
) -> None:
    main, taken, done = os.getpid(), tmp_path / "taken", tmp_path / "done"

    def transform(sample: dict[str, Any]) -> Any:
        if sample["id"] == epochs[0][4][10] and not done.exists():
            while not taken.exists():  # the fifth batch is waited for, or will be at once
                time.sleep(0.01)
            done.touch()
            os.kill(main, signal.SIGINT)
        return {"id": sample["id"]}

    loader, read = StreamingDataLoader(StreamingDataset(local_url, seed=8, transform=transform), BATCH, **WAYS[way]), []

    def train() -> None:
        for batch in loader:
            read.append(batch["id"].tolist())
            if len(read) == 4:
                taken.touch()

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            train()
    finally:
        signal.signal(signal.SIGINT, before)
    assert read == epochs[0][:4]
    assert (loader.state_dict()["position"], loader.epoch) == (400, 1)
    loader.resume()
    assert ids(loader) == epochs[0][4:]


# --- a dataset without our loader


def by_hand(url: str, **options: Any) -> StreamingDataset:
    return StreamingDataset(url, seed=8, batch_size=BATCH, **options)


def test_a_dataset_by_hand_has_the_same_passes(local_url: str, epochs: list[list[list[int]]], flag: Path) -> None:
    flag.touch()
    data = by_hand(local_url, transform=Spoilt(flag, epochs[0][4][10]), drop_last=True)
    with pytest.raises(ValueError, match="bad picture"):
        ids(data)
    assert ids(itertools.islice(data, 2)) == epochs[0][4:6]
    assert (data.epoch, data.state_dict()["position"]) == (1, 600)
    data.resume()
    iter(data)  # nothing was taken from it
    assert ids(itertools.islice(data, 1)) == epochs[0][6:7]
    with pytest.warns(UserWarning, match=r"3 of its 10 batches not taken, and this is epoch 1; .*dataset\.resume"):
        assert ids(data) == epochs[1]
    data.set_epoch(data.epoch)
    first, second = iter(data), iter(data)
    next(first)
    with pytest.warns(UserWarning, match="epoch 2 was left"):
        assert ids([next(second)]) == epochs[3][:1]
    with pytest.raises(mdsx.UsageError, match="this iteration has ended"):
        next(first)
    data.set_epoch(0)
    assert ids(data) == epochs[0]


def test_single_samples_by_hand_have_the_same_passes(local_url: str) -> None:
    data = StreamingDataset(local_url, seed=8)
    read = [sample["id"] for sample in itertools.islice(data, 250)]
    data.resume()
    read += [sample["id"] for sample in data]
    assert (sorted(read), data.epoch) == (list(range(N)), 1)


def test_pytorchs_workers_do_not_warn_of_passes(local_url: str, epochs: list[list[list[int]]]) -> None:
    data = by_hand(local_url, drop_last=True)
    plain: DataLoader[Any] = DataLoader(data, batch_size=None, num_workers=1, persistent_workers=True)
    for epoch in range(2):
        assert ids(itertools.islice(iter(plain), 2)) == epochs[epoch][:2]


# --- one owner of the position


def test_a_dataset_cannot_move_while_a_loader_reads(local_url: str) -> None:
    data = StreamingDataset(mdsx.Mixture([(local_url, 1)], epoch_samples=100))
    state = data.state_dict()
    loader = StreamingDataLoader(data, 10)
    calls: dict[str, Callable[[], Any]] = {
        "state_dict()": data.state_dict,
        "load_state_dict()": lambda: data.load_state_dict(state),
        "set_epoch()": lambda: data.set_epoch(1),
        "reweight()": lambda: data.reweight([2]),
        "resume()": data.resume,
    }
    for name, call in calls.items():
        with pytest.raises(mdsx.UsageError, match=f"call loader.{name[:-2]}"):
            call()
    with pytest.raises(mdsx.UsageError, match=r"call loader\.state_dict"):
        data.state_after(1)
    list(loader)
    del loader
    assert data.state_dict() == state  # it did not move
    data.set_epoch(1)


def test_two_loaders_have_separate_runs_and_weights(local_url: str) -> None:
    mixture = mdsx.Mixture(
        [(local_url, 1), (mdsx.Dataset(local_url).select(0, 500), 1)], epoch_samples=400, component_column="from"
    )
    data = StreamingDataset(mixture, shuffle=mdsx.Shuffle(lanes=8))
    one, two = StreamingDataLoader(data, 40), StreamingDataLoader(data, 40)
    taken = itertools.islice(one, 2)
    list(taken)
    one.reweight([1, 0])
    one.resume()
    assert all(not batch["from"].any() for batch in one)
    assert (two.epoch, two.remaining) == (0, 10)
    assert 199 <= sum(int(batch["from"].sum()) for batch in two) <= 201


# --- copies

COPIES: dict[str, Callable[[Any], Any]] = {
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "pickle": lambda made: pickle.loads(pickle.dumps(made)),
}


@pytest.mark.slow_if("way in {'workers', 'persistent workers'} and how == 'copy'")
@pytest.mark.parametrize(
    ("way", "how"),
    [
        *(("a thread", how) for how in COPIES),
        ("workers", "copy"),
        *(("persistent workers", how) for how in ("copy", "deepcopy")),
        ("pickled workers", "pickle"),
    ],
)
def test_a_copied_loader_is_independent_at_the_same_position(
    make: Make, epochs: list[list[list[int]]], way: str, how: str
) -> None:
    loader = make(way)
    fresh = COPIES[how](loader)
    batches = iter(loader)
    assert ids(itertools.islice(batches, 3)) == epochs[0][:3]
    during = COPIES[how](loader)
    assert (during.state_dict(), during.epoch) == (loader.state_dict(), 0)
    assert ids(during) == epochs[0][3:]
    assert ids(itertools.islice(fresh, 2)) == epochs[0][:2]
    fresh.load_state_dict({**fresh.state_dict(), "epoch": 3, "position": 800})
    assert ids(fresh) == epochs[3][8:]
    assert ids(batches) == epochs[0][3:]  # undisturbed
    assert loader.epoch == 1


@pytest.mark.parametrize("how", COPIES)
def test_a_copied_dataset_is_independent_at_the_same_position(
    local_url: str, epochs: list[list[list[int]]], how: str
) -> None:
    data = by_hand(local_url, drop_last=True)
    batches = iter(data)
    assert ids(itertools.islice(batches, 3)) == epochs[0][:3]
    other = COPIES[how](data)
    assert other.state_dict() == data.state_dict()
    assert ids(other) == epochs[0][3:]
    loader = StreamingDataLoader(other, BATCH)
    assert loader.epoch == 1
    assert ids(batches) == epochs[0][3:]
    assert COPIES[how](other).epoch == 1  # no loader reads the copy


# --- arguments


def test_drop_last_must_be_the_same_for_dataset_and_loader(local_url: str) -> None:
    with pytest.raises(mdsx.UsageError, match=r"drop_last differs .*give drop_last=False to the loader"):
        StreamingDataLoader(StreamingDataset(local_url, drop_last=False), BATCH)
    with pytest.raises(mdsx.UsageError, match="drop_last differs"):
        StreamingDataLoader(StreamingDataset(local_url, drop_last=True), BATCH, drop_last=False)
    whole = StreamingDataLoader(StreamingDataset(local_url, drop_last=False), BATCH, drop_last=False)
    assert len(whole) == BATCHES + 1


@pytest.mark.parametrize(
    ("name", "value"),
    [("batch_size", True), ("num_workers", True), ("num_workers", -1), ("num_workers", 1.0), ("prefetch_factor", True)],
)
def test_numbers_must_be_integers(local_url: str, name: str, value: Any) -> None:
    options = {"batch_size": BATCH, "num_workers": 1, name: value}
    with pytest.raises(mdsx.UsageError, match=f"{name} must be an integer"):
        StreamingDataLoader(StreamingDataset(local_url), **options)


def test_arguments_after_the_batch_size_are_keyword_only(local_url: str) -> None:
    with pytest.raises(TypeError, match="positional"):
        StreamingDataLoader(StreamingDataset(local_url), BATCH, True)  # type: ignore[arg-type, call-arg]
    with pytest.raises(mdsx.UsageError, match="seed"):
        StreamingDataset(local_url, seed=True)


def test_ctrl_c_after_a_batch_was_made_loses_nothing(
    make: Make, epochs: list[list[list[int]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The signal comes between the creation of the batch and its return, which no other process can time."""
    from mdsx.stream import Run

    hand_out, loader = Run.hand_out, make("a thread")

    def interrupted(self: Run, *arguments: Any) -> None:
        hand_out(self, *arguments)
        raise KeyboardInterrupt

    batches = iter(loader)
    next(batches)
    with monkeypatch.context() as patched:
        patched.setattr(Run, "hand_out", interrupted)
        with pytest.raises(KeyboardInterrupt):
            next(batches)
    assert loader.state_dict()["position"] == BATCH
    assert ids(batches) == epochs[0][1:]
