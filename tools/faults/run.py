"""Runs a loader through a case: breaks something, reads, and reads again when the fault is over."""

from __future__ import annotations

import os
import re
import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

from tools.fault_proxy import Proxy, flip
from tools.faults.cases import DATA, LIMIT, REMOTE, Case
from tools.peers import peer
from tools.processes import Call, CallFailed, OutOfTime, stream
from tools.s3_server import S3Server

_WORKERS = 2
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


@dataclass
class Loaders:
    """Loaders whose datasets are in `directory`, and on the S3 server behind `proxy`. Make it with `loaders_in`."""

    directory: Path
    proxy: Proxy
    limit: float
    _runs: int = 0

    def run(self, loader: str, case: Case) -> Found:
        """Raise CallFailed if its dataset cannot even be written."""
        stored = self._stored(loader)
        if not stored.exists():
            _, error, _ = self._call(loader, "prepare", directory=str(stored))
            if error:
                raise CallFailed(error)
        self.proxy.clear()
        first, again = self._write(loader, case) if case.where == "writer" else self._read(loader, case)
        return Found(case.name, loader, first, again)

    def _read(self, loader: str, case: Case) -> tuple[Outcome, Outcome]:
        stored, cache = self._stored(loader), self._scratch()
        shard = [path for path in sorted(stored.rglob("*")) if path.is_file() and path.suffix != ".json"][_SHARD]
        remote = f"s3://{_BUCKET}/{loader}" if loader in REMOTE else ""
        kill = case.where == "worker"
        epoch = partial(self._epoch, loader, cache, stored.parent, shard.name, remote=remote, workers=_WORKERS * kill)
        if case.where == "cached":
            epoch()
            copies = [path for path in cache.rglob("*") if path.is_file() and _STUFFING in path.read_bytes()]
            with flipped(sorted(copies)[_SHARD]):
                return epoch(), epoch()
        fault = case.fault
        if case.where == "transit":
            fault = flip(place_of(whole := shard.read_bytes()) / len(whole))
        if fault is not None:
            self.proxy.add(fault, key=f"*/{shard.relative_to(stored)}", times=case.times)
        with flipped(shard) if case.where == "stored" else nullcontext():
            first = epoch(kill_worker=True) if kill else epoch()
        self.proxy.clear()
        return first, epoch()

    def _write(self, loader: str, case: Case) -> tuple[Outcome, Outcome]:
        """Read what a failed writer left; then write again in the same place, and read that."""
        cache, datasets = self._scratch(), self._scratch()
        outcomes = []
        for deed in (case.deed, ""):
            place = str(datasets / DATA.name)
            _, error, hung = self._call(loader, "write", directory=place, shard=DATA.shards[0], deed=deed)
            found = self._epoch(loader, cache, datasets)
            outcomes.append(Outcome(error=error, hung=hung, named=True) if error and not deed else found)
        return outcomes[0], outcomes[1]

    def _epoch(self, loader: str, cache: Path, datasets: Path, shard: str = "", **how: Any) -> Outcome:
        """Read an epoch. An error must name the `shard`, unless a worker was killed."""
        ids, error, hung = self._call(loader, "read", directory=str(cache), datasets=str(datasets), **how)
        wanted = Counter(DATA.ids)
        wrong = sum(count for number, count in ids.items() if number not in wanted)
        lost, repeated = (wanted - ids).total() - wrong, (ids - wanted).total() - wrong
        named = shard in error or "kill_worker" in how
        return Outcome(wrong, max(lost, 0), repeated, hung, error, named, ids.total())

    def _call(self, loader: str, function: str, **arguments: Any) -> tuple[Counter[int], str, bool]:
        """Return the ids of the samples that were read, the error that ended it, if any, and whether it hung."""
        scratch, ids = self._scratch(), Counter[int]()
        what = Call(f"tools.faults.child:{function}", {"loader": loader, **arguments}, peer(loader).environment)
        try:
            for some in stream(what, {"scratch": str(scratch)}, scratch=scratch, limit=self.limit):
                ids.update(some or ())
        except CallFailed as error:
            return ids, str(error), isinstance(error, OutOfTime)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
        return ids, "", False

    def _scratch(self) -> Path:
        self._runs += 1
        path = self.directory / f"{self._runs:03}"
        path.mkdir()
        return path

    def _stored(self, loader: str) -> Path:
        return self.directory / "s3" / _BUCKET / loader / DATA.name


@contextmanager
def loaders_in(directory: Path, limit: float = LIMIT) -> Iterator[Loaders]:
    """Serve the loaders' datasets while the context lasts."""
    with S3Server(directory / "s3") as server, Proxy(server) as proxy:
        server.make_bucket(_BUCKET)
        with patch.dict(os.environ, {**proxy.env(), "S3_ENDPOINT_URL": proxy.endpoint}):
            yield Loaders(directory, proxy, limit)


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
