"""The soak: its counts are right, so its verdict means something; and a short run."""

from __future__ import annotations

import contextlib
import fcntl
import json
import mmap
import os
import random
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path

import numpy as np
import pytest

import mdsx
from tests.conftest import Often
from tests.tools import ROOT, TOOLS
from tests.tools.test_account import PREDICTED, batch, life
from tests.waiting import wait_until
from tools.account import Delivered, count, once_each, read_log
from tools.conformance.matrix import Shape
from tools.processes import members
from tools.soak import child, jobs, plan
from tools.soak.growth import MOST, Look, Watched, grown, look
from tools.soak.jobs import Job, Process, WriterJob
from tools.soak.report import Report
from tools.soak.run import flip_cached, predictions
from tools.soak.samples import COLUMNS, columns_of, wrong

SOAK = (*TOOLS, "soak")
READERS = 8


@pytest.mark.parametrize("training", plan.JOBS, ids=lambda training: training.name)
def test_a_reader_gets_the_samples_of_the_order(training: plan.JobPlan, tmp_path: Path) -> None:
    for data in training.data:
        child.write(str(tmp_path / data.name), data, pause=0)
    from mdsx.torch import StreamingDataLoader

    loader = StreamingDataLoader(child.dataset_of(training, str(tmp_path)), 100, drop_last=False)
    predicted = list(predictions(training, str(tmp_path), tmp_path / "cache", 2))
    for line in predicted:
        start = 0
        for part in loader:
            assert wrong(part) == 0
            ids = part["id"].tolist()
            assert sorted(ids) == sorted(line[start : start + len(ids)])
            start += len(ids)
        assert start == len(line)
    assert once_each(predicted, training.data[0].ids) != bool(training.weights)


@pytest.mark.parametrize("name", [name for name in COLUMNS if name != "id"])
def test_a_sample_with_any_value_of_another_is_wrong(name: str) -> None:
    found = columns_of(COLUMNS, [5, 6, 9])
    assert wrong(found) == 0
    found[name][1] = columns_of(COLUMNS, [12])[name][0]
    assert wrong(found) == 1
    assert wrong({**columns_of(COLUMNS, [5, 6]), "id": np.array([6, 5])}) == 2
    assert wrong({**columns_of(COLUMNS, [5]), "id": np.array([-5])}) == 1
    assert wrong(columns_of(COLUMNS, [])) == 0


class TestGrowth:
    """Growth over the whole life of a process."""

    @staticmethod
    def looks(handles: Callable[[int], float]) -> list[Look]:
        return [Look(float(at), 0, int(handles(at)), 1) for at in range(100)]

    @staticmethod
    def minutes(many: int, handles: Callable[[int], float]) -> list[Look]:
        """Return one look per second."""
        return [Look(float(at), 0, int(handles(at)), 1) for at in range(60 * many)]

    @staticmethod
    def swings(seed: int, seconds: int = 10) -> Callable[[int], int]:
        """Return values between 26 and 85 that hold for some seconds, as connections and mapped shards come and go."""
        chance = random.Random(seed)
        places = [chance.randint(26, 85) for _ in range(4000)]
        return lambda at: places[at // seconds] + at % 3

    def test_one_handle_a_minute_is_a_leak(self) -> None:
        for many in (10, 30):
            found = grown(self.minutes(many, lambda at: 20 + at / 60 + at % 2), "handles") or 0
            assert found > MOST["handles"]
            assert 0.4 * many < found < 0.8 * many

    def test_a_leak_beneath_much_noise_is_found_in_time(self) -> None:
        for seed in range(5):
            noise = self.swings(seed)
            found = grown(self.minutes(240, lambda at, noise=noise: noise(at) + at / 60), "handles") or 0  # type: ignore[misc]
            assert found > MOST["handles"]

    def test_noise_is_no_leak_however_long(self) -> None:
        for seed in range(50):
            for seconds, many in ((1, 7), (5, 7), (10, 10), (10, 60)):
                assert (grown(self.minutes(many, self.swings(seed, seconds)), "handles") or 0) <= MOST["handles"]

    def test_filling_up_or_one_step_is_no_growth(self) -> None:
        assert (grown(self.looks(lambda at: min(at, 30)), "handles") or 0) < 1
        assert (grown(self.looks(lambda at: 20 + 9 * (at > 90)), "handles") or 0) < 1

    def test_a_briefly_watched_process_is_not_judged(self) -> None:
        watched = Watched()
        for each in self.looks(lambda at: at)[:20]:
            watched.add("it", each)
        assert watched.growth("handles", least=45) == {}
        assert watched.highest("handles") == {"it": 19}
        rows = dict(Report(1, 0.3, "", "", growth={"handles": {}}, highest={"handles": 19}).rows())
        assert rows["growth of handles"] == "not judged: no process lived long enough for it; highest 19"

    def test_growth_and_too_much_at_any_time_are_problems(self) -> None:
        watched = Watched()
        for each in self.looks(lambda at: 20 + at / 2):
            watched.add("leaky", each)
        for each in self.looks(lambda at: 401)[:3]:
            watched.add("greedy", each)
        leaky, greedy = watched.problems(least=45)
        assert leaky.startswith("leaky: its handles grew by ")
        assert greedy == "greedy: it had 401 handles"

    def test_a_look_sees_memory_handles_and_threads(self) -> None:
        before = look(os.getpid(), 0.0)
        with tempfile.TemporaryFile():
            block = mmap.mmap(-1, 2**25)  # new memory, however much of the heap is free
            for _ in range(32):
                block.write(b"x" * 2**20)
            after = look(os.getpid(), 1.0)
        assert before is not None
        assert after is not None
        assert after.handles == before.handles + 1
        assert after.memory > before.memory + len(block) // 2
        assert look(2**22 + 1, 0.0) is None


@pytest.mark.slow
def test_a_reader_recovers_from_a_lost_worker(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    lost = RuntimeError("worker 1 ended with exit code -9 while it made a batch; was it killed because memory ran out?")
    errors = [lost, RuntimeError("another")]
    monkeypatch.setattr(child, "deliver", lambda *arguments: (_ for _ in ()).throw(errors.pop(0)))
    monkeypatch.setattr("signal.signal", lambda *arguments: None)
    monkeypatch.setattr("faulthandler.register", lambda *arguments, **options: None)
    reading = child.Reading(plan.JOBS[0], "", mdsx.Cache(tmp_path), Shape(1, 0, 1), tmp_path / "it")
    with pytest.raises(SystemExit) as ended:
        child.read(reading)
    assert ended.value.code == child.GAVE_UP
    assert [each.kind for each in read_log(reading.log).raised] == ["worker"]
    with pytest.raises(RuntimeError, match="another"):
        child.read(reading)


class TestPlan:
    """The seed decides everything that is planned."""

    def test_the_same_seed_plans_the_same(self) -> None:
        first, again, other = (list(islice(plan.events(seed), 200)) for seed in (1, 1, 2))
        assert first == again
        assert first != other
        assert [each.at for each in first] == sorted(each.at for each in first)

    def test_each_round_has_everything(self) -> None:
        within = {each.what for each in islice(plan.events(3), 100) if each.at < plan.ROUND}
        assert len(within) == 8

    def test_there_are_always_eight_readers(self) -> None:
        assert sum(each.shape.world for each in plan.JOBS) == READERS
        for draw in range(100):
            shapes = plan.reshaped(4, draw)
            assert sum(shape.world for shape in shapes) == 4
            assert any(shape.workers for shape in shapes)

    def test_every_kind_of_fault_comes(self) -> None:
        assert {plan.weather(draw)[0] for draw in range(200)} == set(plan.weathers(random.Random(0)))


def test_only_what_nobody_has_mapped_is_flipped(tmp_path: Path) -> None:
    (tmp_path / "x").mkdir()
    shard = tmp_path / "x" / "y.mdsx"
    shard.write_bytes(bytes(1000))
    with shard.open("rb") as lease:
        fcntl.flock(lease, fcntl.LOCK_SH)
        assert not flip_cached(tmp_path, random.Random(1))
    assert shard.read_bytes() == bytes(1000)
    assert flip_cached(tmp_path, random.Random(1))
    assert sum(byte.bit_count() for byte in shard.read_bytes()) == 1


def test_a_wrongly_written_dataset_is_found(tmp_path: Path) -> None:
    failures: list[str] = []
    expected = {"index.json": b"right"}
    writer = WriterJob("it", plan.OUTPUT, str(tmp_path), tmp_path, expected, tmp_path / "output", failures)
    (tmp_path / "0" / "_mdsx").mkdir(parents=True)
    (tmp_path / "0" / "index.json").write_bytes(b"right")
    writer.check()
    assert not failures
    (tmp_path / "0" / "index.json").write_bytes(b"wrong")
    writer.check()
    assert failures == ["writer it: dataset 0 is not as expected"]


@pytest.mark.slow
def test_a_stalled_reader_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failures: list[str] = []
    with socket.create_server(("127.0.0.1", 0)) as silent:  # it never answers
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{silent.getsockname()[1]}")
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
        monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        cache, shape = mdsx.Cache(tmp_path / "cache", limit=10**7), Shape(1, 0, 8)
        it = Job(child.Reading(plan.JOBS[-1], "s3://bucket/data", cache, shape, tmp_path, patience=1.0), failures)
        it.begin(shape)
        try:
            deadline = time.monotonic() + 60
            while not failures:
                assert time.monotonic() < deadline
                it.tick()
                time.sleep(0.05)
        finally:
            it.kill_all()
    assert failures[0].startswith(f"steady tokens, rank 0 ended with {-signal.SIGALRM}: ")
    assert "in deliver" in failures[0]  # the stack


class TestVerdict:
    """The last line and the exit status."""

    @staticmethod
    def report(*delivered: Delivered) -> Report:
        found = Report(1, 1.0, "mdsx", "machine", cache_limit=10, cache_highest=10)
        found.counts["job"] = count([life(*delivered)], PREDICTED[:1])
        return found

    def test_a_faultless_soak_passes(self) -> None:
        report = self.report(batch(0, 0, 3, 1, 0, 2))
        assert report.problems() == []
        assert report.verdict() == "Nothing wrong, lost, repeated, leaked or hung: 4 samples."
        assert json.loads(report.to_json())["counts"]["job"]["delivered"] == 4

    def test_anything_else_is_a_failure(self) -> None:
        report = self.report(batch(0, 0, 3, 1))
        assert report.verdict().startswith("THE SOAK FAILED: 1 problems, the first: job: 0 wrong, 2 lost, 0 repeated")
        report.cache_highest = 11
        report.failures.append("a reader hung")
        assert len(report.problems()) == 3


@pytest.mark.slow
def test_a_short_soak_finds_nothing(tmp_path: Path, often: Often) -> None:
    """Everything happens in it at least once: with this seed, within 4 seconds."""
    minutes = often(8, long=150) / 60
    command = [*SOAK, "--minutes", str(minutes), "--seed", "461", "--json", str(tmp_path / "soak.json")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=280)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1].startswith("Nothing wrong, lost, repeated, leaked or hung: ")
    found = json.loads((tmp_path / "soak.json").read_text())
    events = {kind for kind in vars(plan) if kind.startswith("KILL_")} | {"RESHAPE", "FLIP", "DOWN"}
    assert {getattr(plan, kind) for kind in events} <= {kind for kind, times in found["events"].items() if times}
    assert found["broken"] > 0
    assert found["cache_highest"] > found["cache_limit"] // 2
    assert set(found["counts"]) == {each.name for each in plan.JOBS}
    assert all(each["epochs"] >= 1 for each in found["counts"].values())
    assert found["written"] >= 1


@pytest.mark.slow
def test_interrupted_it_leaves_no_process_and_no_file(tmp_path: Path) -> None:
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen(
        [*SOAK, "--minutes", "5"], cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        deadline = time.monotonic() + 120
        while not list(tmp_path.glob("mdsx-soak-*/lives/*.state")):
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.05)
        sessions = [process.pid, *_sessions_of(tmp_path)]
        assert len(sessions) > READERS
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=120)
    assert process.returncode == 130
    # Their parent notices that it is alone.
    wait_until(lambda: not any(members(session=session) for session in sessions))
    assert not list(tmp_path.glob("mdsx-soak-*"))


def _sessions_of(directory: Path) -> list[int]:
    """Return the processes that work in `directory` by their environment, and lead a session."""
    found = []
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            try:
                output = os.readlink(f"{entry.path}/fd/1")
            except OSError:
                continue
            if output.startswith(str(directory)) and os.getsid(int(entry.name)) == int(entry.name):
                found.append(int(entry.name))
    return found


def pipes() -> set[str]:
    """Return the pipes that this process has open."""
    found = set()
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # the one that listed them
            found.add(os.readlink(f"/proc/self/fd/{name}"))
    return {link for link in found if link.startswith("pipe:")}


def test_ended_processes_leave_no_pipe_open(tmp_path: Path) -> None:
    first = Process(tmp_path / "first.txt", _nothing).begin()  # the server of the forks has its own pipes
    first.join(60)
    assert first.status == 0
    for _ in range(3):  # a thread of another test may open a pipe at the same time, but not each time
        before = pipes()
        begun = [Process(tmp_path / f"{number}.txt", _nothing).begin() for number in range(3)]
        for process in begun[1:]:
            process.join(60)
        begun[0].end()
        assert [process.status for process in begun[1:]] == [0, 0]
        left = pipes() - before
        if not left:
            break
    assert not left
    begun[1].end(workers=False)  # may be repeated


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_process_whose_start_was_interrupted_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    """The interrupt comes when the process runs, but before it is recorded."""
    original, before = Process.start, signal.signal(number, signal.default_int_handler)

    def interrupted(process: Process) -> None:
        original(process)
        os.kill(os.getpid(), number)
        time.sleep(0.1)

    monkeypatch.setattr(Process, "start", interrupted)
    process = Process(tmp_path / "output.txt", time.sleep, 600)
    try:
        with pytest.raises(KeyboardInterrupt):
            process.begin()
    finally:
        signal.signal(number, before)
    assert process.status is None
    jobs.end_all()
    assert process.status == -signal.SIGKILL


def _nothing() -> None:
    return
