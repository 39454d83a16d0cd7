"""Whatever runs, kills, commits, replacements, appends and cleans come in which order: every dataset that was committed
and not replaced is whole, and a running run can commit.

Time is that of the files on a disk: it passes by making them older.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import hypothesis.strategies as st
import pytest
from hypothesis import Phase, settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

import mdsx
from mdsx.writer import write_part
from mdsx.writer.runs import Done, Driver, replaced
from mdsx.writer.runs.record import RunRecord
from tests.writer.runs.test_clean import DAY, age, die
from tests.writer.runs.test_commit import COLUMNS, SAMPLES, batches, begin, fails, numbers


class _Killed(BaseException):
    pass


class Histories(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.mkdtemp()
        self.url = f"{self.folder}/out"
        self.running: dict[Driver, list[Done]] = {}
        self.dataset: list[int] | None = None  # the numbers of its samples
        self.appended = 100_000

    def teardown(self) -> None:
        for driver in self.running:
            die(driver)
        shutil.rmtree(self.folder)

    def pick(self, number: int) -> Driver:
        return list(self.running)[number % len(self.running)]

    @precondition(lambda self: len(self.running) < 3)
    @rule()
    def begins(self) -> None:
        driver = begin(self.url, mode="create" if self.dataset is None else "replace")
        self.running[driver] = []

    @precondition(lambda self: self.running)
    @rule(which=st.integers(0, 9), part=st.integers(0, 3))
    def an_attempt_is_done(self, which: int, part: int) -> None:
        driver = self.pick(which)
        done = write_part(driver.job, part, batches(part))
        self.running[driver] = [*(other for other in self.running[driver] if other.part != part), done]

    @precondition(lambda self: self.running)
    @rule(which=st.integers(0, 9))
    def an_attempt_fails(self, which: int) -> None:
        with pytest.raises(RuntimeError):
            write_part(self.pick(which).job, 0, fails(0))

    @precondition(lambda self: self.running)
    @rule(which=st.integers(0, 9))
    def is_killed(self, which: int) -> None:
        driver = self.pick(which)
        del self.running[driver]
        die(driver)

    @precondition(lambda self: self.running)
    @rule(which=st.integers(0, 9))
    def aborts(self, which: int) -> None:
        driver = self.pick(which)
        self.running.pop(driver)
        driver.abort()

    @precondition(lambda self: self.running)
    @rule(which=st.integers(0, 9), kill=st.sampled_from([None, None, "state", "end", "leftovers", "_tidy"]))
    def commits(self, which: int, kill: str | None) -> None:
        driver = self.pick(which)
        done = self.running.pop(driver)
        before = self.index()
        assert driver.record.state() == "running"
        with pytest.MonkeyPatch.context() as patch:
            if kill:
                patch.setattr({"leftovers": replaced, "_tidy": Driver}.get(kill, RunRecord), kill, _kill)
            try:
                driver.commit(done)
                committed = True
            except mdsx.ChangedError:  # another run was first
                committed = False
            except _Killed:
                committed = self.index() != before
                die(driver)
        if committed:
            self.dataset = [number for result in done for number in _numbers(result)]
            self.dataset.sort()
        else:
            assert self.index() == before

    def index(self) -> bytes | None:
        path = Path(self.url, "index.json")
        return path.read_bytes() if path.exists() else None

    @precondition(lambda self: self.dataset)
    @rule()
    def is_appended_to(self) -> None:
        name = f"part-{self.appended}"
        with mdsx.Writer(f"{self.url}/{name}", COLUMNS, shard_size=500) as out:
            for batch in batches(self.appended):
                out.write_batch(batch)
        mdsx.append(self.url, name)
        assert self.dataset is not None
        self.dataset += range(self.appended * SAMPLES, (self.appended + 1) * SAMPLES)
        self.appended += 1

    @rule(days=st.sampled_from([0.02, 0.5, 2]))
    def time_passes(self, days: float) -> None:
        """Drivers at work give signs of life."""
        age(self.url, days * DAY)
        for driver in self.running:
            driver.record.sign()

    @rule(older_than=st.sampled_from(["0s", "1h", "1d"]), dry_run=st.booleans())
    def is_cleaned(self, older_than: str, dry_run: bool) -> None:
        mdsx.clean(self.url, older_than=older_than, dry_run=dry_run)

    @invariant()
    def the_dataset_is_whole(self) -> None:
        assert (self.index() is not None) == (self.dataset is not None)
        if self.dataset is not None:
            assert numbers(self.url) == self.dataset

    @invariant()
    def what_a_running_run_has_done_is_there(self) -> None:
        for driver, done in self.running.items():
            assert driver.record.state() == "running"
            for result in done:
                assert numbers(f"{self.url}/{result.folder}") == list(_numbers(result))


def _kill(*args: object, **options: object) -> None:
    raise _Killed


def _numbers(done: Done) -> range:
    return range(done.part * SAMPLES, done.part * SAMPLES + done.samples)


TestHistories = Histories.TestCase
TestHistories.settings = settings(stateful_step_count=20, deadline=None, phases=[Phase.reuse, Phase.generate])
