"""Runs a loader through a case: breaks something, reads, and reads again when the fault is over."""

from __future__ import annotations

import os
import re
import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import msgspec

from tools.conformance.matrix import Shape
from tools.conformance.task import WRONG, Task, read_log
from tools.fault_proxy import Proxy, flip
from tools.faults.cases import DATA, LIMIT, REMOTE, Case
from tools.peers import peer
from tools.processes import Call, CallFailed, OutOfTime, call
from tools.s3_server import S3Server

_WORKERS, _BATCH = 2, 12
_BUCKET = "faults"
_SHARD = 4  # which one is broken
_STUFFING = b"xxxxxxxx"  # in the texts of the samples
_FEW = 20


@dataclass(frozen=True)
class Outcome:
    """The outcome of a run. `named`: whether an error about a shard names it."""

    wrong: int = 0
    lost: int = 0
    repeated: int = 0
    hung: bool = False
    error: str = ""
    named: bool = False
    read: int = 0

    @property
    def word(self) -> str:
        """The word for the table."""
        parts = [f"{count} {word}" for count, word in ((self.wrong, "wrong"), (self.repeated, "repeated")) if count]
        if self.hung:
            parts.append("hang")
        elif self.error:
            parts.append("error" if self.named else "error without a place")
        elif self.lost:
            parts.append(f"{self.lost} lost")
        return ", ".join(parts) or "exact"


@dataclass(frozen=True)
class Found:
    """Both runs of a case."""

    case: str
    loader: str
    first: Outcome
    again: Outcome

    @property
    def words(self) -> tuple[str, str]:
        """The words for the table. If a writer failed, the first is what a reader then finds."""
        first = self.first.word
        if self.case.startswith("writer") and not self.first.hung:
            first = (
                "no dataset" if self.first.error else f"{self.first.read} of {DATA.samples} samples as a whole dataset"
            )
        return first, self.again.word


class Loaders:
    """Loaders with their datasets on an S3 server and a proxy, in `directory`, while the context lasts."""

    def __init__(self, directory: Path, limit: float = LIMIT) -> None:
        self._directory = directory
        self._limit = limit
        self._stack = ExitStack()
        self._runs = 0

    def __enter__(self) -> Loaders:
        server = self._stack.enter_context(S3Server(self._directory / "s3"))
        server.make_bucket(_BUCKET)
        self._proxy = self._stack.enter_context(Proxy(server))
        environment = {**self._proxy.env(), "S3_ENDPOINT_URL": self._proxy.endpoint}
        self._stack.enter_context(patch.dict(os.environ, environment))
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def run(self, loader: str, case: Case) -> Found:
        """Raise CallFailed if its dataset cannot even be written."""
        if not self._stored(loader).exists():
            error, _ = self._call(loader, "prepare", directory=str(self._stored(loader)))
            if error:
                raise CallFailed(error)
        self._proxy.clear()
        runner = self._write if case.where == "writer" else self._read
        first, again = runner(loader, case)
        return Found(case.name, loader, first, again)

    def _read(self, loader: str, case: Case) -> tuple[Outcome, Outcome]:
        cache = self._scratch() / "run"
        files = [path for path in sorted(self._stored(loader).rglob("*")) if path.is_file() and path.suffix != ".json"]
        shard = files[_SHARD]
        task = self._task(loader, cache)
        workers = _WORKERS if case.where == "worker" else 0
        if case.where == "cached":
            self._epoch(loader, task, shard)
            copies = [path for path in cache.rglob("*") if path.is_file() and _STUFFING in path.read_bytes()]
            with flipped(sorted(copies)[_SHARD]):
                return self._epoch(loader, task, shard), self._epoch(loader, task, shard)
        with ExitStack() as stack:
            if case.where == "stored":
                stack.enter_context(flipped(shard))
            fault = case.fault
            if case.where == "transit":
                fault = flip(place_of(whole := shard.read_bytes()) / len(whole))
            if fault is not None:
                self._proxy.add(fault, key=f"*/{shard.relative_to(self._stored(loader))}", times=case.times)
            first = self._epoch(loader, task, shard, workers, kill_worker=case.where == "worker")
        self._proxy.clear()
        return first, self._epoch(loader, task, shard, workers)

    def _write(self, loader: str, case: Case) -> tuple[Outcome, Outcome]:
        """Read what a failed writer left; then write again in the same place, and read that."""
        place = self._scratch() / "datasets" / DATA.name
        place.parent.mkdir(parents=True)
        task = self._task(loader, place.parent.parent / "run", place.parent)
        outcomes = []
        for deed in (case.deed, ""):
            error, hung = self._call(loader, "write", directory=str(place), shard=DATA.shards[0], deed=deed)
            found = self._epoch(loader, task, None)
            outcomes.append(Outcome(error=error, hung=hung, named=True) if error and not deed else found)
        return outcomes[0], outcomes[1]

    def _epoch(
        self, loader: str, task: Task, shard: Path | None, workers: int = 0, *, kill_worker: bool = False
    ) -> Outcome:
        task = replace(task, shape=Shape(1, workers, _BATCH))
        task.log_file(0).unlink(missing_ok=True)
        error, hung = self._call(loader, "read", task=msgspec.to_builtins(task), kill_worker=kill_worker)
        ids = Counter[int]()
        if task.log_file(0).exists():
            ids.update(each for part in read_log(task.log_file(0))[1] for each in part.ids)
        wanted = Counter(DATA.ids)
        wrong = sum(count for number, count in ids.items() if number not in wanted)
        assert WRONG not in wanted
        return Outcome(
            wrong=wrong,
            lost=max((wanted - ids).total() - wrong, 0),
            repeated=(ids - wanted).total() - wrong,
            hung=hung,
            error=error,
            named=kill_worker or shard is None or shard.name in error,
            read=ids.total(),
        )

    def _task(self, loader: str, directory: Path, datasets: Path | None = None) -> Task:
        directory.mkdir(parents=True, exist_ok=True)
        remote = loader in REMOTE and datasets is None
        return Task(
            directory=str(directory),
            datasets=str(datasets or self._stored(loader).parent),
            data=(DATA,),
            shape=Shape(1, 0, _BATCH),
            stop=None,
            epochs=1,
            seed=7,
            remote=f"s3://{_BUCKET}/{loader}" if remote else "",
        )

    def _call(self, loader: str, function: str, **arguments: Any) -> tuple[str, bool]:
        """Return the error with which it ended, if any, and whether it hung."""
        scratch = self._scratch()
        what = Call(f"tools.faults.child:{function}", {"loader": loader}, peer(loader).environment)
        try:
            answer = call(what, {**arguments, "scratch": str(scratch)}, scratch=scratch, limit=self._limit)
            return str(answer.get("raised", "")), False
        except CallFailed as error:
            return str(error), isinstance(error, OutOfTime)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)

    def _scratch(self) -> Path:
        self._runs += 1
        path = self._directory / f"{self._runs:03}"
        path.mkdir()
        return path

    def _stored(self, loader: str) -> Path:
        return self._directory / "s3" / _BUCKET / loader / DATA.name


def place_of(whole: bytes) -> int:
    """The byte of a file to damage: in a sample's text, or in the middle if the file is compressed.

    Parquet has some texts uncompressed too, but those are statistics.
    """
    places = [found.start() for found in re.finditer(_STUFFING, whole)]
    return places[len(places) // 2] if len(places) > _FEW else len(whole) // 2


@contextmanager
def flipped(path: Path) -> Iterator[None]:
    """Flip one bit of a file during the block."""
    whole = path.read_bytes()
    place = place_of(whole)
    path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
    try:
        yield
    finally:
        if path.exists():
            path.write_bytes(whole)
