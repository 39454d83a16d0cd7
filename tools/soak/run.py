"""Runs the soak: a server and its faults, readers and writers, the events that hit them, and the observers."""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import os
import random
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np

import mdsx
from tools.account import count, once_each
from tools.conformance.matrix import Shape
from tools.fault_proxy import Proxy
from tools.machine import commit, machine, today
from tools.processes import ROOT, members
from tools.s3_server import S3Server
from tools.soak import growth, plan
from tools.soak.job import Job
from tools.soak.plan import DATASETS, JOBS, OUTPUT, Event, events, reshaped
from tools.soak.processes import end_all, preload
from tools.soak.reader import dataset_of
from tools.soak.report import Report
from tools.soak.samples import COLUMNS, columns_of
from tools.soak.weather import weather
from tools.soak.writer import WriterJob, contents
from tools.tables import put_between_marks
from tools.watch import CacheWatch

_TICK = 0.05  # seconds
_LOOK = 1.0
_DOWN = 0.3  # seconds without a server
_END = 120.0  # seconds in which everything must end when asked to
_LONG = 150.0  # seconds for which a process must be watched to judge its growth
_ORPHANED = 60.0  # seconds in which the workers of a killed reader must end


def run(given: argparse.Namespace) -> int:
    """Return 1 if anything was wrong. Everything it started has ended then."""
    print(f"Soaking for {given.minutes:g} minutes, --seed {given.seed}", flush=True)
    report = Soak(given.minutes, given.seed, lambda text: print(text, flush=True)).run()
    for name, text in report.rows():
        print(f"{name}: {text}")
    for problem in report.problems():
        print(f"PROBLEM: {problem}")
    if given.json:
        Path(given.json).write_text(report.to_json())
    if given.docs:
        put_between_marks(ROOT / "docs" / "reliability.md", "soak", "figures", report.markdown())
    print(report.verdict())
    return 1 if report.problems() else 0


class Soak:
    """One run. Its directory, processes and servers are removed when `run` returns or raises."""

    def __init__(self, minutes: float, seed: int, say: Callable[[str], None]) -> None:
        here = machine()
        version = f"{today()}, mdsx {mdsx.__version__} at {commit()}"
        self.report = Report(seed, minutes, version, f"{here['cores']} cores, {here['memory']}, {here['processor']}")
        self._seconds = 60 * minutes
        self._say = say
        self._seed = seed
        self._watched = growth.Watched()

    def run(self) -> Report:
        with ExitStack() as stack:
            self._work = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="mdsx-soak-")))
            self._scratch = self._work / "lives"
            self._scratch.mkdir()
            self._cache = self._work / "cache"
            server = stack.enter_context(S3Server(self._work / "s3"))
            server.make_bucket("soak")
            self._local = self._work / "s3" / "soak"
            self._write_datasets()
            self._proxy = stack.enter_context(Proxy(server, seed=self._seed))
            watch = stack.enter_context(CacheWatch(str(self._cache)))
            preload()
            stack.callback(end_all)
            self._start()
            self._storm()
            self._calm()
            self._close(watch)
        return self.report

    def _write_datasets(self) -> None:
        for data in (*DATASETS, OUTPUT):
            root = self._work / "expected" if data is OUTPUT else self._local / "data" / data.name
            columns = {name: COLUMNS[name] for name in data.columns}
            with mdsx.Writer(root, columns, shard_size=data.shard_size, compression=data.compression) as out:
                out.write_batch(columns_of(data.columns, list(data.ids)))
        cache = self._work / "unused"  # so that the user's own cache is not used
        written = [mdsx.Dataset(self._local / "data" / data.name, cache=cache) for data in DATASETS]
        sizes = [int(each.shards.index.raw_sizes.sum()) for each in written]
        self.report.dataset_bytes = sum(sizes)
        self.report.cache_limit = sum(sizes) // plan.CACHE_PART

    def _start(self) -> None:
        environment = {**self._proxy.env(), "OMP_NUM_THREADS": "1", "TMPDIR": str(self._work)}
        limit = self.report.cache_limit
        self._jobs = [Job(each, "s3://soak/data", self._cache, limit, self._scratch, environment) for each in JOBS]
        expected = contents(self._work / "expected")
        where = {"disk": (str(self._work / "out"), self._work / "out"), "S3": ("s3://soak/out", self._local / "out")}
        self._writers = [
            WriterJob(name, OUTPUT, url, root, expected, self._scratch / f"writer-{name}.txt", environment)
            for name, (url, root) in where.items()
        ]
        self._mortal = [job for job in self._jobs if not job.plan.steady]
        for job in self._jobs:
            job.begin(job.plan.shape)

    def _storm(self) -> None:
        """Let the planned events happen, until the time is over."""
        begun = reported = looked = time.monotonic()
        coming = events(self._seed)
        event = next(coming)
        waiting: list[Event] = []
        while (now := time.monotonic()) - begun < self._seconds:
            waiting = [each for each in waiting if not self._happen(each)]
            while event.at <= now - begun:
                if not self._happen(event):  # there was nothing it could happen to
                    waiting.append(event)
                event = next(coming)
            for job in self._jobs:
                job.tick()
            for writer in self._writers:
                writer.tick()
            if now - looked >= _LOOK:
                looked = now
                self._look(now - begun)
            if now - reported >= max(min(self._seconds / 20, 30.0), 5.0):
                reported = now
                self._tell(now - begun)
            time.sleep(_TICK)

    def _happen(self, event: Event) -> bool:
        """Do what an event says; return whether it was possible."""
        chance = random.Random(event.draw)
        job = chance.choice(self._mortal)
        done = True
        if event.what == plan.WEATHER:
            name, rules = weather(event.draw)
            self._forget_rules()
            self._weather = name
            self._proxy.rules.extend(rules)
            return True
        if event.what in (plan.KILL_READER, plan.KILL_GROUP):
            job.kill(event.draw, workers=event.what == plan.KILL_GROUP)
        elif event.what == plan.KILL_WORKER:
            done = self._kill_a_worker(chance)
        elif event.what == plan.RESHAPE:
            self._reshape(chance, event.draw)
        elif event.what == plan.FLIP:
            done = flip_cached(self._cache, chance)
        elif event.what == plan.KILL_WRITER:
            chance.choice(self._writers).kill()
        elif event.what == plan.DOWN:
            with self._proxy.down():
                time.sleep(_DOWN)
        self.report.events[event.what] += done
        return done

    def _kill_a_worker(self, chance: random.Random) -> bool:
        found = [pid for job in self._mortal for process in job.processes for pid in process.workers()]
        with contextlib.suppress(ProcessLookupError):
            if found:
                os.kill(chance.choice(found), signal.SIGKILL)
                return True
        return False

    def _reshape(self, chance: random.Random, draw: int) -> None:
        pair = chance.sample(self._mortal, 2)
        shapes = reshaped(sum(job.shape.world for job in pair), draw)
        states = [job.kill_all() for job in pair]
        for job, shape, state in zip(pair, shapes, states, strict=True):
            job.begin(shape, state)

    def _forget_rules(self) -> None:
        """Record how often the current kind of fault occurred, and end it."""
        hits = sum(rule.hits for rule in self._proxy.rules)
        if hits:
            self.report.faults[self._weather] += hits
        self.report.requests += len(self._proxy.asked)
        self.report.broken += sum(asked.faulty for asked in self._proxy.asked)
        self._proxy.clear()

    def _look(self, at: float) -> None:
        for job in self._jobs:
            for number, process in enumerate(job.processes):
                for pid in members(session=process.pid) if job.plan.steady else [process.pid]:
                    self._watched.add(f"{job.plan.name}, rank {number}, process {pid}", growth.look(pid, at))

    def _tell(self, at: float) -> None:
        killed = sum(count for what, count in self.report.events.items() if "kill" in what)
        finished = sum(writer.finished for writer in self._writers)
        problems = self._failures()
        self._say(
            f"  {at:4.0f} s  {self._weather:<20}{killed:4} kills, {self.report.requests + len(self._proxy.asked):,} "
            f"requests, {finished} datasets written" + (f", {len(problems)} PROBLEMS" if problems else "")
        )

    def _failures(self) -> list[str]:
        of_jobs = [text for job in self._jobs for text in job.failures]
        return of_jobs + [text for writer in self._writers for text in writer.failures]

    # --- the end

    def _calm(self) -> None:
        """Without faults: everything ends when asked to, and each job finishes its epoch with the cache as it is."""
        self._forget_rules()
        self._say("  No more faults: everything is asked to end")
        for job in self._jobs:
            job.stop()
        for job in self._jobs:
            job.stopped(time.monotonic() + _END)
        for writer in self._writers:
            writer.finish(_END)
        self._wait_for_orphans()
        for job in self._jobs:
            state = job.kill_all()
            self._say(f"  {job.plan.name}: to the end of epoch {state['epoch'] if state else 0}")
            job.begin(Shape(1, 0, 32), state, until=(state["epoch"] if state else 0) + 1)
        deadline = time.monotonic() + _END
        for job in self._jobs:
            job.stopped(deadline)

    def _wait_for_orphans(self) -> None:
        deadline = time.monotonic() + _ORPHANED
        sessions = {session for job in self._jobs for session in job.sessions()}
        while left := [pid for session in sessions for pid in members(session=session)]:
            if time.monotonic() > deadline:
                self.report.failures.append(f"{len(left)} processes remain of readers that ended")
                return
            time.sleep(0.5)

    def _close(self, watch: CacheWatch) -> None:
        """Count everything."""
        report = self.report
        self._forget_rules()
        report.cache_highest, report.cache_looks = watch.highest, watch.looks
        for job in self._jobs:
            self._count(job)
        for writer in self._writers:
            report.written += writer.finished
            report.writer_kills += writer.kills
        report.failures += self._failures()
        for what in growth.MOST:
            report.growth[what], report.highest[what] = self._watched.growth(what, _LONG), self._watched.highest(what)
        report.failures += self._watched.problems(_LONG)
        if not report.events[plan.FLIP]:
            report.failures.append("no cached file was ever free of leases, so that a bit of it could be flipped")

    def _count(self, job: Job) -> None:
        report = self.report
        generations, starts = job.lives()
        lives = [life for ranks in generations for rank in ranks for life in rank]
        report.processes += len(lives)
        for raised in (each for life in lives for each in life.raised):
            report.errors[f"{raised.name}" if raised.kind != "worker" else "worker lost"] += 1
            if raised.kind in ("other", "nameless"):
                report.failures.append(f"{job.plan.name}: {raised.name}: {raised.text}")
        predicted = list(
            predictions(job.plan, str(self._local / "data"), self._work / "unused", epochs=starts[-1][0] + 1)
        )
        report.counts[job.plan.name] = count(generations, starts, predicted)
        if not job.plan.weights and not once_each(predicted, job.plan.data[0].ids):
            report.failures.append(f"{job.plan.name}: the order itself has not each sample once")


def predictions(job: plan.JobPlan, root: str, cache: Path, epochs: int) -> Iterator[list[int]]:
    """Yield the ids at each position of each epoch, according to the order."""
    data = dataset_of(job, root, cache=cache)
    firsts = []
    for each, part in zip(job.data, data._data.view.excerpts, strict=True):
        counts = part.shards.index.counts
        firsts.append(each.first + np.cumsum(counts) - counts)
    first_ids = np.concatenate(firsts)
    size = data._data.course.epoch_samples
    for epoch in range(epochs):
        shards, samples = data._data.course.locate(np.arange(epoch * size, (epoch + 1) * size))
        yield (first_ids[shards] + samples).tolist()


def flip_cached(cache: Path, chance: random.Random) -> bool:
    """Flip a bit of a cached shard that no process has mapped, as a disk may; return whether there was one.

    A mapped shard was verified before: damage that comes later, under the mapping, cannot be detected.
    """
    shards = sorted(cache.glob("*/*.mdsx"))
    chance.shuffle(shards)
    for path in shards:
        try:
            with path.open("r+b") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                place = chance.randrange(os.fstat(file.fileno()).st_size)
                file.seek(place)
                byte = file.read(1)[0]
                file.seek(place)
                file.write(bytes([byte ^ 1 << chance.randrange(8)]))
                return True
        except (BlockingIOError, FileNotFoundError):
            continue
    return False
