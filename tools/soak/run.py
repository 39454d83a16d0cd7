"""Runs the soak: a server and its faults, readers and writers, the events that hit them, and the observers."""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import multiprocessing
import os
import random
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from unittest.mock import patch

import numpy as np

import mdsx
from mdsx.datasets import excerpt_of
from tools.account import count, once_each
from tools.conformance.matrix import Shape
from tools.fault_proxy import Proxy, Rule
from tools.pages import commit, machine, put_between_marks, today
from tools.processes import ROOT, kill, members
from tools.servers.s3 import S3Server
from tools.soak import growth, plan
from tools.soak.child import Reading, dataset_of, write
from tools.soak.jobs import Job, WriterJob, contents, end_all
from tools.soak.plan import DATASETS, JOBS, OUTPUT, Event
from tools.soak.report import Report
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
    report = Soak(given.minutes, given.seed).run()
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

    def __init__(self, minutes: float, seed: int) -> None:
        here = machine()
        version = f"{today()}, mdsx {mdsx.__version__} at {commit()}"
        self.report = Report(seed, minutes, version, f"{here['cores']} cores, {here['memory']}, {here['processor']}")
        self._watched = growth.Watched()
        self._weather = ""

    def run(self) -> Report:
        with ExitStack() as stack:
            self._work = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="mdsx-soak-")))
            server = stack.enter_context(S3Server(self._work / "s3"))
            server.make_bucket("soak")
            self._local = self._work / "s3" / "soak"
            self._write_datasets()
            self._proxy = stack.enter_context(Proxy(server, seed=self.report.seed))
            watch = stack.enter_context(CacheWatch(str(self._work / "cache")))
            environment = {**self._proxy.env(), "OMP_NUM_THREADS": "1", "TMPDIR": str(self._work)}
            stack.enter_context(patch.dict(os.environ, environment))
            multiprocessing.get_context("forkserver").set_forkserver_preload(["tools.soak.jobs", "boto3"])
            stack.callback(end_all)
            self._start()
            self._storm()
            self._calm()
            self._conclude(watch)
        return self.report

    def _write_datasets(self) -> None:
        for data in (*DATASETS, OUTPUT):
            write(str(self._work / "expected" if data is OUTPUT else self._local / "data" / data.name), data, pause=0)
        cache = self._work / "unused"  # so that the user's own cache is not used
        written = [mdsx.Dataset(self._local / "data" / data.name, cache=cache) for data in DATASETS]
        self.report.dataset_bytes = sum(int(excerpt_of(each).shards.index.raw_sizes.sum()) for each in written)
        self.report.cache_limit = self.report.dataset_bytes // plan.CACHE_PART

    def _start(self) -> None:
        lives, failures = self._work / "lives", self.report.failures
        lives.mkdir()
        cache = mdsx.Cache(self._work / "cache", limit=self.report.cache_limit)
        self._jobs = [Job(Reading(each, "s3://soak/data", cache, each.shape, lives), failures) for each in JOBS]
        self._mortal = [job for job in self._jobs if not job.plan.steady]
        expected = contents(self._work / "expected")
        self._writers = [
            WriterJob(name, OUTPUT, url, root, expected, lives / f"writer-{name}.txt", failures)
            for name, url, root in (
                ("disk", str(self._work / "out"), self._work / "out"),
                ("S3", "s3://soak/out", self._local / "out"),
            )
        ]
        for job in self._jobs:
            job.begin(job.plan.shape)

    def _storm(self) -> None:
        seconds, begun = 60 * self.report.minutes, time.monotonic()
        coming, waiting = plan.events(self.report.seed), list[Event]()
        event = next(coming)
        at = looked = reported = 0.0
        while at < seconds:
            while event.at <= at:
                waiting.append(event)
                event = next(coming)
            waiting = [each for each in waiting if not self._happen(each)]  # there may be nothing it can happen to
            for job in self._jobs:
                job.tick()
            for writer in self._writers:
                writer.tick()
            if at - looked >= _LOOK:
                looked = at
                self._watch_readers(at)
            if at - reported >= max(min(seconds / 20, 30.0), 5.0):
                reported = at
                done, problems = self.report.events.total(), len(self.report.failures)
                print(f"  {at:4.0f} s  {self._weather:<20}{done:4} events, {problems} problems", flush=True)
            time.sleep(_TICK)
            at = time.monotonic() - begun

    def _happen(self, event: Event) -> bool:
        """Do what an event says; return whether it was possible."""
        chance, done = random.Random(event.draw), True
        job = chance.choice(self._mortal)
        match event.what:
            case plan.WEATHER:
                self._change_weather(*plan.weather(event.draw))
                return True
            case plan.KILL_READER | plan.KILL_GROUP:
                job.kill(event.draw, workers=event.what == plan.KILL_GROUP)
            case plan.KILL_WORKER:
                workers = [pid for job in self._mortal for reader in job.readers for pid in reader.workers()]
                kill(chance.sample(workers, min(len(workers), 1)))
                done = bool(workers)
            case plan.RESHAPE:
                pair = chance.sample(self._mortal, 2)
                shapes = plan.reshaped(sum(job.shape.world for job in pair), event.draw)
                states = [job.kill_all() for job in pair]
                for job, shape, state in zip(pair, shapes, states, strict=True):
                    job.begin(shape, state)
            case plan.FLIP:
                done = flip_cached(self._work / "cache", chance)
            case plan.KILL_WRITER:
                chance.choice(self._writers).kill()
            case plan.DOWN:
                with self._proxy.down():
                    time.sleep(_DOWN)
        self.report.events[event.what] += done
        return done

    def _change_weather(self, name: str, rules: list[Rule]) -> None:
        """End the current kind of faults, record how often it occurred, and begin another."""
        if hits := sum(rule.hits for rule in self._proxy.rules):
            self.report.faults[self._weather] += hits
        self.report.requests += len(self._proxy.asked)
        self.report.broken += sum(asked.faulty for asked in self._proxy.asked)
        self._proxy.clear()
        self._weather = name
        self._proxy.rules.extend(rules)

    def _watch_readers(self, at: float) -> None:
        for job in self._jobs:
            for number, reader in enumerate(job.readers):
                for pid in members(session=reader.session) if job.plan.steady else [reader.session]:
                    self._watched.add(f"{job.plan.name}, rank {number}, process {pid}", growth.look(pid, at))

    # --- the end

    def _calm(self) -> None:
        """Without faults: everything ends when asked to, and each job finishes its epoch with the cache as it is."""
        self._change_weather("calm", [])
        print("  No more faults: everything is asked to end", flush=True)
        for job in self._jobs:
            job.stop()
        for job in self._jobs:
            job.stopped(time.monotonic() + _END)
        for writer in self._writers:
            writer.finish(_END)
        deadline = time.monotonic() + _ORPHANED
        while left := [pid for job in self._jobs for pid in job.left()]:
            if time.monotonic() > deadline:
                self.report.failures.append(f"{len(left)} processes remain of readers that ended")
                break
            time.sleep(0.5)
        for job in self._jobs:
            state = job.kill_all()
            epoch = state["epoch"] if state else 0
            print(f"  {job.plan.name}: to the end of epoch {epoch}", flush=True)
            job.begin(Shape(1, 0, 32), state, until=epoch + 1)
        deadline = time.monotonic() + _END
        for job in self._jobs:
            job.stopped(deadline)

    def _conclude(self, watch: CacheWatch) -> None:
        report = self.report
        self._change_weather("", [])
        for job in self._jobs:
            self._count(job)
        report.cache_highest, report.cache_looks = watch.highest, watch.looks
        report.written = sum(writer.finished for writer in self._writers)
        report.writer_kills = sum(writer.kills for writer in self._writers)
        for what in growth.MOST:
            report.growth[what] = self._watched.growth(what, _LONG)
            report.highest[what] = max(self._watched.highest(what).values(), default=0)
        report.failures += self._watched.problems(_LONG)
        if not report.events[plan.FLIP]:
            report.failures.append("no cached file was ever free of leases, so that a bit of it could be flipped")

    def _count(self, job: Job) -> None:
        report, name, lives = self.report, job.plan.name, job.lives()
        report.processes += len(lives)
        for raised in (each for life in lives for each in life.raised):
            report.errors["worker lost" if raised.kind == "worker" else raised.name] += 1
            if raised.kind in ("other", "nameless"):
                report.failures.append(f"{name}: {raised.name}: {raised.text}")
        epochs = job.readers[0].reading.until or 0
        predicted = list(predictions(job.plan, str(self._local / "data"), self._work / "unused", epochs))
        report.counts[name] = count(lives, predicted)
        if not job.plan.weights and not once_each(predicted, job.plan.data[0].ids):
            report.failures.append(f"{name}: the order itself has not each sample once")


def predictions(job: plan.JobPlan, root: str, cache: Path, epochs: int) -> Iterator[list[int]]:
    """Yield the ids at each position of each epoch, according to the order."""
    data = dataset_of(job, root, cache=cache)
    firsts = []
    for each, part in zip(job.data, data._reading.view.excerpts, strict=True):
        counts = part.shards.index.counts
        firsts.append(each.first + np.cumsum(counts) - counts)
    first_ids = np.concatenate(firsts)
    size = data._reading.course.epoch_samples
    for epoch in range(epochs):
        shards, samples = data._reading.course.locate(np.arange(epoch * size, (epoch + 1) * size))
        yield (first_ids[shards] + samples).tolist()


def flip_cached(cache: Path, chance: random.Random) -> bool:
    """Flip a bit of a cached shard that no process has mapped, as a disk may; return whether there was one.

    A mapped shard was verified before: damage that comes later, under the mapping, cannot be detected.
    """
    shards = sorted(cache.glob("*/*.mdsx"))
    chance.shuffle(shards)
    for path in shards:
        with contextlib.suppress(BlockingIOError, FileNotFoundError), path.open("r+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            place = chance.randrange(os.fstat(file.fileno()).st_size)
            damaged = os.pread(file.fileno(), 1, place)[0] ^ 1 << chance.randrange(8)
            os.pwrite(file.fileno(), bytes([damaged]), place)
            return True
    return False
